package page

import (
	"testing"

	"gonum.org/v1/plot"
)

// TestAxesHaveLabels: an axis has at least five labels, whatever its range.
func TestAxesHaveLabels(t *testing.T) {
	labels := func(ticks []plot.Tick) (n int) {
		for _, k := range ticks {
			if k.Label != "" {
				n++
			}
		}
		return n
	}
	for _, to := range []float64{0.2, 1, 2.9, 3, 10, 33, 1e5} {
		if n := labels(LinearTicks(0, to)); n < leastLabels || n > 12 {
			t.Errorf("%d labels from 0 to %g", n, to)
		}
	}
	for _, d := range [][2]float64{{1, 10}, {0.1, 10}, {1e-4, 1e4}, {10, 1000}} {
		if n := labels(LogTicks(d[0], d[1])); n < leastLabels || n > 14 {
			t.Errorf("%d labels from %g to %g", n, d[0], d[1])
		}
	}
	for _, deepest := range []float64{1, 30, 999, 1e4, 1e6} {
		within := 0
		for _, k := range Percentiles(deepest) {
			if k.Value <= max(deepest, 10) {
				within++
			}
		}
		if within < leastLabels {
			t.Errorf("%d labels up to 1/%g", within, deepest)
		}
	}
}
