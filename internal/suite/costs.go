package suite

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockquake/lockquake/results/figure"
)

// cost is a measure of a lock's cost that a suite compares with its baseline.
type cost struct {
	measure, unit string
	// A run costs more if the measure is at least ratio times the baseline's, and higher by at least more. Counts of
	// one acquire or release are exact. The cost of waiting also depends on how soon a busy machine lets a user poll
	// again.
	ratio, more float64
}

var costs = []cost{
	{"requests_per_acquire", "requests for an acquire", 1.3, 1},
	{"requests_per_release", "requests for a release", 1.3, 1},
	{"connections_per_grant", "connections for a grant", 1.3, 0.5},
	{"requests_per_wait_s", "requests for each second of waiting", 2, 10},
}

// Costs returns the names of the compared measures.
func Costs() (names []string) {
	for _, c := range costs {
		names = append(names, c.measure)
	}
	return names
}

// costsOf returns the compared measures of a run; nil if there are none.
func costsOf(measures map[string]*float64) (out map[string]float64) {
	for _, c := range costs {
		if v := measures[c.measure]; v != nil {
			if out == nil {
				out = map[string]float64{}
			}
			out[c.measure] = *v
		}
	}
	return out
}

// dearer lists what costs more in each run of a cell than in any run of the baseline's.
func dearer(now, before Cell) (told []string) {
	for _, c := range costs {
		least, most := math.Inf(1), math.Inf(-1)
		for _, r := range now.Runs {
			if v, ok := r.Cost[c.measure]; ok {
				least = min(least, v)
			}
		}
		for _, r := range before.Runs {
			if v, ok := r.Cost[c.measure]; ok {
				most = max(most, v)
			}
		}
		if known := !math.IsInf(least, 0) && !math.IsInf(most, 0); known && least > c.ratio*most &&
			least-most >= c.more {
			told = append(told, fmt.Sprintf("%s %s, %s in the baseline", figure.Number(least), c.unit,
				figure.Number(most)))
		}
	}
	slices.Sort(told)
	return told
}
