package capacity

import "math"

// Quantiles are the names of latencies, from the median to the tail.
var Quantiles = []string{"p50", "p90", "p99", "p999", "p9999"}

// Levels are the quantiles as fractions.
var Levels = []float64{0.5, 0.9, 0.99, 0.999, 0.9999}

// beyond is how many acquires must be expected beyond a quantile before it confirms a rate. Of n acquires, those of
// rank nq ± √(nq(1-q)) give the quantile q. With 10 beyond it, the rank is known to a third of the distance to the
// end. Fewer are enough to show the quantile: figure.Samples.
const beyond = 10

// needed returns how many acquires a quantile needs to confirm a rate: 1,000 for p99, 100,000 for p99.99.
func needed(q float64) int64 { return int64(math.Ceil(beyond/(1-q) - 1e-6)) }

// acquires returns how many were timed in a run measured for the given ns. Older files lack the number; they had
// about one acquire per cycle.
func (s Sample) acquires(measured int64) int64 {
	if s.Acquires > 0 {
		return s.Acquires
	}
	return int64(s.Cycles * float64(measured) / 1e9)
}
