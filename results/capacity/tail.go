package capacity

import "math"

// Quantiles are the names of latencies, from the median to the tail.
var Quantiles = []string{"p50", "p90", "p99", "p999", "p9999"}

// Levels are the parts that they are the bounds of, 0 to 1.
var Levels = []float64{0.5, 0.9, 0.99, 0.999, 0.9999}

// beyond is how many acquires must be expected beyond a quantile before it confirms a rate. Of n acquires, q is told by
// those of rank nq, give or take √(nq(1-q)). With 10 beyond it, the rank is known to a third of the distance to the
// end. It is shown from fewer on: figure.Samples.
const beyond = 10

// needed is how many acquires a quantile needs to confirm a rate: 1,000 for p99, 100,000 for p99.99.
func needed(q float64) int64 { return int64(math.Ceil(beyond/(1-q) - 1e-6)) }

// acquires is how many were timed in a run that was measured for so many ns; where an older file does not tell, it had
// about one for each cycle.
func (s Sample) acquires(measured int64) int64 {
	if s.Acquires > 0 {
		return s.Acquires
	}
	return int64(s.Cycles * float64(measured) / 1e9)
}
