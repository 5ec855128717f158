package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lockquake/lockquake/results/figure"
)

// Search looks for the highest rate of an open loop that keeps an objective. It remembers nothing: Next is told all that was measured so far. It goes by
// bisection on a logarithmic scale, and confirms what it found.
type Search struct {
	Objective Objective
	Start     float64 // arrivals a second to try first: the peak of the closed loop
	Confirm   int     // runs that must all keep the objective; 0: 3
	Most      int     // runs in all that are not spoilt; 0: searchRuns
	Measured  int64   // ns, of each run
}

const (
	// step is how near the lowest rate that fails must be to the highest that keeps.
	step = 1.05
	// widen is the step while there is no rate of one kind.
	widen = 2
	// spoiltMost is how many runs of one rate may be spoilt before the search ends: the generator can do no more.
	spoiltMost = 3
	// spoiltAll is how many runs may be spoilt in all.
	spoiltAll = 12
	// searchRuns is how many runs a search makes, spoilt ones aside, where nobody says.
	searchRuns = 40
	// SearchMost is how many points such a search makes at most.
	SearchMost = searchRuns + spoiltAll
	// excuse is how many times its own lag (p99) a late generator may be why a latency is above the objective.
	excuse = 3
	// reach is how far from the start the search goes, up and down.
	reach = 1000
)

// trial is a rate and what its runs said.
type trial struct {
	rate                float64
	kept, failed, spoil int
	acquires            int64 // of the runs that kept it
}

// kind of a run.
type kind int

const (
	kept kind = iota
	failed
	spoilt
)

// judge tells whether a run kept the objective. One in which the lock was none did not, whatever its latency. More arrivals without a user than
// come due in the objective's time did not keep it. A generator that lagged may be why a run did not keep it, so that this proves nothing, unless the
// run missed it by much more than that lag. A run that kept it did so with the lag in its latencies, which count from when an acquire was due.
func (o Objective) judge(s Sample) kind {
	latency, known := s.Latency[o.name()]
	// Who came due last and waits at the end of the run may yet keep it.
	served := float64(s.Unserved) <= s.Offered*float64(o.Most)/1e9 && s.served()
	switch {
	case s.Spoilt != "":
		return spoilt
	case s.Verdict == "fail":
		return failed
	case known && served && latency*1e6 <= float64(o.Most):
		return kept
	case !known && served, s.Late > lateAllowed(&o) && (!known || latency-excuse*s.Late <= float64(o.Most)/1e6):
		return spoilt
	}
	return failed
}

// served reports whether the cycles kept up with the arrivals. Those that were under way when the measured time began and ended make a difference of
// one or two, which is more than a few percent of few arrivals.
func (s Sample) served() bool {
	due := cmp.Or(s.Due, s.Offered)
	few := s.Acquires > 0 && s.Cycles > 0 && float64(s.Acquires)*(due/s.Cycles-1) <= 2
	return few || s.Cycles >= servedPart*due
}

// name is that of the quantile among a sample's latencies: p99, p999.
func (o Objective) name() string {
	for i, q := range Levels {
		if math.Abs(o.Quantile-q) < 1e-9 {
			return Quantiles[i]
		}
	}
	return fmt.Sprintf("p%g", 100*o.Quantile)
}

// String writes an objective as the command line takes it.
func (o Objective) String() string { return dotted(o.name()) + " within " + figure.Duration(o.Most) }

// state is what the runs say: the highest rate that keeps, and the lowest that fails.
type state struct {
	trials  []trial
	low     *trial // nil: none keeps
	high    *trial // nil: none fails
	blocked *trial // the generator could not do it
	runs    int
	spoilt  int
}

func (s Search) look(points []Point) state {
	var st state
	for _, p := range points {
		if p.Rate <= 0 {
			continue
		}
		at := slices.IndexFunc(st.trials, func(t trial) bool { return math.Abs(t.rate/p.Rate-1) < 1e-6 })
		if at < 0 {
			at = len(st.trials)
			st.trials = append(st.trials, trial{rate: p.Rate})
		}
		for _, one := range p.Samples {
			switch t := &st.trials[at]; s.Objective.judge(one) {
			case kept:
				t.kept++
				t.acquires += one.acquires(s.Measured)
				st.runs++
			case failed:
				t.failed++
				st.runs++
			case spoilt:
				t.spoil++
				st.spoilt++
			}
		}
	}
	slices.SortFunc(st.trials, func(a, b trial) int { return int(math.Copysign(1, a.rate-b.rate)) })
	for i := range st.trials { // upwards: what keeps above a rate that fails was luck
		t := &st.trials[i]
		if t.failed > 0 {
			st.high = t
			break
		}
		if t.kept > 0 {
			st.low = t
		} else if t.spoil >= spoiltMost {
			st.blocked = t
			break
		}
	}
	return st
}

func (s Search) confirm() int {
	if s.Confirm > 0 {
		return s.Confirm
	}
	return 3
}

// more is how many runs at a rate are still needed to confirm it: so many as are asked for, and as have enough acquires for the quantile.
func (s Search) more(t trial) int {
	runs := s.confirm() - t.kept
	if lack := needed(s.Objective.Quantile) - t.acquires; lack > 0 && t.acquires > 0 {
		each := float64(t.acquires) / float64(t.kept)
		runs = max(runs, int(math.Ceil(float64(lack)/each)))
	}
	return max(runs, 0)
}

// Next is the rate of the next run, or done. Points are those of one curve; closed loops among them are passed over.
func (s Search) Next(points []Point) (rate float64, done bool) {
	st := s.look(points)
	most := s.Most
	if most <= 0 {
		most = searchRuns
	}
	if !(s.Start > 0) || st.runs >= most || st.spoilt >= spoiltAll {
		return 0, true
	}
	above := st.high
	if above == nil {
		above = st.blocked
	}
	switch {
	case st.low == nil && above == nil:
		return s.Start, false
	case above == nil:
		rate = st.low.rate * widen
	case st.low == nil:
		rate = above.rate / widen
	case above.rate/st.low.rate > step:
		rate = math.Sqrt(above.rate * st.low.rate)
	}
	if rate > 0 && rate <= s.Start*reach && rate >= s.Start/reach {
		return rate, false
	}
	if st.low == nil || st.low.spoil >= spoiltMost {
		return 0, true
	}
	more := s.more(*st.low)
	if st.runs+more > most { // a tail that all runs together cannot tell is not begun
		more = s.confirm() - st.low.kept
	}
	if more <= 0 {
		return 0, true
	}
	return st.low.rate, false
}

// Kept is what the search found on a curve.
type Kept struct {
	Rate  float64 // the highest that kept the objective; 0: none did
	Runs  int     // that kept it at this rate, all that were made
	Fails float64 // the lowest rate that did not; 0: none failed
	// Confirmed is that enough runs kept it, and that a rate at most 5 % above does not.
	Confirmed bool
	Why       string // it is not
	Blocked   bool   // runs that were spoilt, or whose generator was late, ended the search
}

// Found sums up the search so far.
func (s Search) Found(points []Point) Kept {
	st := s.look(points)
	k := Kept{Blocked: st.blocked != nil}
	if st.high != nil {
		k.Fails = st.high.rate
	}
	if st.low != nil {
		k.Rate, k.Runs = st.low.rate, st.low.kept
	}
	switch {
	case len(st.trials) == 0:
		k.Why = "no rate was tried"
	case st.low == nil && st.blocked != nil:
		k.Why = fmt.Sprintf("the runs at %s/s were spoilt, or their generator was late", figure.Number(st.blocked.rate))
	case st.low == nil:
		k.Why = "no rate that was tried kept it"
	case st.blocked != nil:
		k.Why = fmt.Sprintf("above it, at %s/s, runs were spoilt or their generator was late", figure.Number(st.blocked.rate))
	case st.high == nil:
		k.Why = "no rate was found that fails"
	case k.Runs < s.confirm():
		k.Why = fmt.Sprintf("%d of %d runs to confirm it were made", k.Runs, s.confirm())
	case st.low.acquires < needed(s.Objective.Quantile):
		k.Why = fmt.Sprintf("%s acquires were timed at it, and %s needs %s: make runs longer with --for",
			figure.Count(st.low.acquires), dotted(s.Objective.name()), figure.Count(needed(s.Objective.Quantile)))
	case k.Fails/k.Rate > step*1.000001:
		k.Why = fmt.Sprintf("between it and %s/s nothing was tried", figure.Number(k.Fails))
	default:
		k.Confirmed = true
	}
	return k
}

// keptOf is what a finished sweep found for a setting.
func keptOf(s Sweep, of Setting) Kept {
	switch {
	case s.Objective == nil:
		return Kept{Why: "no objective was asked for"}
	case len(s.Asked) > 0:
		return Kept{Why: "it was not searched: leave --rate out"}
	}
	var points []Point
	for _, p := range s.Points {
		users := p.Setting
		users.Users, users.Rate = 0, 0
		if users == of {
			points = append(points, p)
		}
	}
	return Search{Objective: *s.Objective, Confirm: s.Confirm, Measured: s.Measured}.Found(points)
}
