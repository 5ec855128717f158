package links

import (
	"fmt"
	"math"
	"time"

	"github.com/lockquake/lockquake/history"
)

// proportion judges from a count of datagrams whether a fault hits the requested share of them. A count varies by
// chance, so it proves or disproves the fault only where chance is unlikely (doubt).
//
// Example: a loss of 30 % and 100 datagrams. Half that share would lose 15 on average, and 4 or fewer in less than one
// of 1000 measurements: so 4 lost are NotInstalled. 25 lost are Installed if none was lost before. If 20 were lost
// before too, 25 are Indeterminate: that can be chance.
type proportion struct {
	share       float64 // asked for
	correlation float64 // of one outcome with the one before it
	was, ofWas  int     // before
	is, of      int     // now
}

// doubt is the probability below which a count counts as evidence against the request, or against the state before.
const doubt = 1e-3

// status returns NotInstalled if even half of the share would hardly hit so few. It returns Installed if the rate
// before the fault would hardly hit so many. Correlated packets prove less, so they count as a smaller, effective
// number.
func (t proportion) status() history.ReceiptStatus {
	effective := (1 - t.correlation) / (1 + t.correlation)
	n, k := int(float64(t.of)*effective), int(math.Ceil(float64(t.is)*effective))
	before := float64(t.was) / float64(max(t.ofWas, 1))
	switch {
	case n == 0:
		return history.Indeterminate
	case atMost(k, n, t.share/2) < doubt:
		return history.NotInstalled
	case t.is == 0 || before > 0 && 1-atMost(k-1, n, before) > doubt:
		return history.Indeterminate
	}
	return history.Installed
}

// tally returns how many datagrams of a Flow a fault hit, and out of how many.
type tally func(f Flow) (k, n int)

func lost(f Flow) (k, n int)   { return f.Sent - f.Arrived, f.Sent }
func copied(f Flow) (k, n int) { return f.Copies, f.Arrived }
func leapt(f Flow) (k, n int)  { return f.Leapt, f.Arrived }

// status judges one lane by the tally.
func (t tally) status(l shapedLane, share float64, correlation Share) history.ReceiptStatus {
	p := proportion{share: share, correlation: float64(correlation)}
	p.was, p.ofWas = t(l.was)
	p.is, p.of = t(l.is)
	return p.status()
}

// noisy returns a function that reports whether the tally before the fault was already half of a share.
func (t tally) noisy(share Share) func(Flow) bool {
	return func(was Flow) bool { k, n := t(was); return much(k, n, share) }
}

func (t tally) before(lanes []shapedLane) string {
	return ratio(lanes, func(l shapedLane) (int, int) { return t(l.was) })
}

func (t tally) now(lanes []shapedLane) string {
	return ratio(lanes, func(l shapedLane) (int, int) { return t(l.is) })
}

// much reports whether k of n is at least half of the requested share. That many before the fault hide it.
func much(k, n int, share Share) bool { return 2*float64(k) >= float64(n)*float64(share) && k > 0 }

// atMost returns the probability of k or fewer out of n, each with probability p.
func atMost(k, n int, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n || p <= 0:
		return 1
	case p >= 1:
		return 0
	}
	all, _ := math.Lgamma(float64(n + 1))
	sum := 0.0
	for i := 0; i <= k; i++ {
		hit, _ := math.Lgamma(float64(i + 1))
		missed, _ := math.Lgamma(float64(n - i + 1))
		sum += math.Exp(all - hit - missed + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}
	return min(sum, 1)
}

// enoughFor returns a measurement with enough datagrams that half of a share is missed on at most one link in a
// thousand.
func enoughFor(share, correlation Share) MeasureArgs {
	n := math.Log(1/doubt) / (float64(share) / 2) * (1 +
		float64(correlation)) / (1 - float64(min(correlation, mostCorrelation)))
	n = min(max(n, 100), 14000)
	return MeasureArgs{
		Count: int(math.Ceil(n)),
		Every: max(min(time.Millisecond, time.Duration(float64(2*time.Second)/n)), 200*time.Microsecond),
	}
}

// mostCorrelation bounds correlations: beyond it the available time is too short to judge.
const mostCorrelation Share = 0.9

func (s Share) correlates() error {
	if s > mostCorrelation {
		return fmt.Errorf("correlation is %v: want at most %v", s, mostCorrelation)
	}
	return nil
}

// over formats the range of a duration over lanes.
func over(lanes []shapedLane, f func(shapedLane) time.Duration) string {
	return within(lanes, func(l shapedLane) (time.Duration, time.Duration) { return f(l), f(l) })
}

func within(lanes []shapedLane, f func(shapedLane) (low, high time.Duration)) string {
	low, high := time.Duration(math.MaxInt64), time.Duration(math.MinInt64)
	for _, l := range lanes {
		a, b := f(l)
		low, high = min(low, a), max(high, b)
	}
	if rounded(low) == rounded(high) {
		return rounded(low).String()
	}
	return fmt.Sprintf("%v to %v", rounded(low), rounded(high))
}

// ratio formats the sum of a count over lanes, out of the sum of another.
func ratio(lanes []shapedLane, f func(shapedLane) (k, n int)) string {
	k, n := 0, 0
	for _, l := range lanes {
		a, b := f(l)
		k, n = k+a, n+b
	}
	if n == 0 {
		return "none of 0"
	}
	return fmt.Sprintf("%d of %d (%.1f %%)", k, n, 100*float64(k)/float64(n))
}

func arrived(lanes []shapedLane) string {
	return ratio(lanes, func(l shapedLane) (int, int) { return l.is.Arrived, l.is.Sent }) + " arrived"
}
