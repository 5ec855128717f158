package capacity

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/lockquake/lockquake/results/figure"
)

// confidence is the level of every interval.
const confidence = 0.95

// Interval is a figure over the samples of a point.
type Interval struct {
	N   int     `json:"n"`   // samples with the figure
	Mid float64 `json:"mid"` // their median
	// Low and High bound the median with a confidence of at least 95 %. With fewer than 6 samples they are the lowest
	// and the highest, and Spread is true.
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Spread bool    `json:"spread,omitempty"`
}

// Summary summarises values; without values N is 0.
func Summary(values []float64) Interval {
	if len(values) == 0 {
		return Interval{}
	}
	sum := benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds),
		confidence)
	i := Interval{N: len(values), Mid: sum.Center, Low: sum.Lo, High: sum.Hi}
	if math.IsInf(sum.Lo, 0) || math.IsInf(sum.Hi, 0) {
		i.Low, i.High, i.Spread = slices.Min(values), slices.Max(values), true
	}
	return i
}

// String formats the figure and its bounds, such as "410 (402 to 421)".
func (i Interval) String() string { return bracketed(i.parts()) }

// Parts returns the figure and its bounds for a table; "" without a figure.
func (i Interval) Parts() [2]string {
	middle, bounds := i.parts()
	return [2]string{middle, bounds}
}

// parts returns the figure and its bounds; "" without a figure.
func (i Interval) parts() (middle, bounds string) {
	switch {
	case i.N == 0:
		return notKnown, ""
	case i.N == 1 || i.Low == i.High:
		return figure.Number(i.Mid), ""
	}
	return figure.Number(i.Mid), figure.Number(i.Low) + " to " + figure.Number(i.High)
}
