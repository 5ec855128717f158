package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
)

// Search looks for the highest rate of an open loop that keeps an objective. It is stateless: Next gets all
// measurements so far. It bisects on a logarithmic scale, and confirms the result.
type Search struct {
	Objective Objective
	Start     float64 // arrivals a second of the first try: the peak of the closed loop
	Confirm   int     // number of runs that must all keep the objective; 0: 3
	Most      int     // maximum number of usable runs; 0: searchRuns
	Measured  int64   // ns, of each run
}

const (
	// step is the maximum ratio of the lowest failing rate to the highest kept rate at the end.
	step = 1.05
	// widen is the factor until there is both a failing and a kept rate.
	widen = 2
	// spoiltMost is the number of spoilt runs of one rate that ends the search: the generator can do no more.
	spoiltMost = 3
	// spoiltAll is the maximum of spoilt runs in all.
	spoiltAll = 12
	// searchRuns is the default maximum of usable runs of a search.
	searchRuns = 40
	// SearchMost is the maximum of points of such a search.
	SearchMost = searchRuns + spoiltAll
	// excuse bounds what a late generator explains: a latency that misses the objective by up to this many times its
	// own lag (p99).
	excuse = 3
	// reach is the maximum factor between the start and a tried rate, up and down.
	reach = 1000
)

// Trial is the result of the runs at one rate for an objective.
type Trial struct {
	Rate         float64 // arrivals a second
	Kept, Failed int     // runs
	Late, Spoilt int     // runs that prove nothing: with a late generator, or spoilt
	acquires     int64   // of the runs that kept it
}

// Runs returns how many runs were made at the rate.
func (t Trial) Runs() int { return t.Kept + t.Failed + t.Late + t.Spoilt }

// unproven returns how many of the runs prove nothing.
func (t Trial) unproven() int { return t.Late + t.Spoilt }

// String says how many of the runs kept the objective, and what the others were: "1 of 2 runs (1 with a late
// generator)".
func (t Trial) String() string {
	s := fmt.Sprintf("%d of %s", t.Kept, figure.Of(t.Runs(), "run"))
	var others []string
	for _, o := range []struct {
		n    int
		what string
	}{{t.Late, "with a late generator"}, {t.Spoilt, "spoilt"}} {
		if o.n > 0 {
			others = append(others, fmt.Sprintf("%d %s", o.n, o.what))
		}
	}
	if len(others) > 0 {
		s += " (" + strings.Join(others, ", ") + ")"
	}
	return s
}

// try counts the runs of a point.
func (o Objective) try(t *Trial, samples []Sample, measured int64) {
	for _, s := range samples {
		switch o.judge(s) {
		case kept:
			t.Kept++
			t.acquires += s.acquires(measured)
		case failed:
			t.Failed++
		case late:
			t.Late++
		case spoilt:
			t.Spoilt++
		}
	}
}

// kind is the result of a run.
type kind int

const (
	kept kind = iota
	failed
	late
	spoilt
)

// judge classifies a run by the objective. A run in which the lock failed did not keep it, whatever its latency. Nor
// did one with more unserved arrivals than fall due in the objective's time. If the generator lagged, a miss proves
// nothing, unless it is much larger than the lag. A run that kept it did so including the lag, because latencies
// count from when an acquire was due.
func (o Objective) judge(s Sample) kind {
	latency, known := s.Latency[o.name()]
	// The latest arrivals that still wait at the end of the run may yet keep it.
	served := float64(s.Unserved) <= s.Offered*float64(o.Most)/1e9 && s.served()
	switch {
	case s.Spoilt != "":
		return spoilt
	case s.Verdict == "fail":
		return failed
	case known && served && latency*1e6 <= float64(o.Most):
		return kept
	case s.Late > lateAllowed(&o) && (!known || latency-excuse*s.Late <= float64(o.Most)/1e6):
		return late
	case !known && served:
		return spoilt
	}
	return failed
}

// served reports whether the cycles kept up with the arrivals. Cycles in progress at the ends of the measured time
// make a difference of one or two, which is more than a few percent of few arrivals.
func (s Sample) served() bool {
	due := cmp.Or(s.Due, s.Offered)
	few := s.Acquires > 0 && s.Cycles > 0 && float64(s.Acquires)*(due/s.Cycles-1) <= 2
	return few || s.Cycles >= servedPart*due
}

// name returns the name of the quantile among a sample's latencies: p99, p999.
func (o Objective) name() string {
	for i, q := range Levels {
		if math.Abs(o.Quantile-q) < 1e-9 {
			return Quantiles[i]
		}
	}
	return fmt.Sprintf("p%g", 100*o.Quantile)
}

// String formats an objective as on the command line.
func (o Objective) String() string { return dotted(o.name()) + " within " + figure.Duration(o.Most) }

// state is the result of the runs so far: the highest kept rate, and the lowest failing one.
type state struct {
	trials  []Trial
	low     *Trial // nil: no rate was kept
	high    *Trial // nil: no rate failed
	blocked *Trial // the generator could not produce it
	runs    int
	spoilt  int
}

func (s Search) look(points []Point) state {
	var st state
	for _, p := range points {
		if p.Rate <= 0 {
			continue
		}
		at := slices.IndexFunc(st.trials, func(t Trial) bool { return math.Abs(t.Rate/p.Rate-1) < 1e-6 })
		if at < 0 {
			at = len(st.trials)
			st.trials = append(st.trials, Trial{Rate: p.Rate})
		}
		s.Objective.try(&st.trials[at], p.Samples, s.Measured)
	}
	slices.SortFunc(st.trials, func(a, b Trial) int { return cmp.Compare(a.Rate, b.Rate) })
	for _, t := range st.trials {
		st.runs, st.spoilt = st.runs+t.Kept+t.Failed, st.spoilt+t.unproven()
	}
	for i := range st.trials { // upwards: a kept rate above a failing one was luck
		t := &st.trials[i]
		if t.Failed > 0 {
			st.high = t
			break
		}
		if t.Kept > 0 {
			st.low = t
		} else if t.unproven() >= spoiltMost {
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

// more returns how many runs at a rate are still needed to confirm it: the requested number, with enough acquires for
// the quantile.
func (s Search) more(t Trial) int {
	runs := s.confirm() - t.Kept
	if lack := needed(s.Objective.Quantile) - t.acquires; lack > 0 && t.acquires > 0 {
		each := float64(t.acquires) / float64(t.Kept)
		runs = max(runs, int(math.Ceil(float64(lack)/each)))
	}
	return max(runs, 0)
}

// Next returns the rate of the next run, or done. points are those of one curve; closed loops are skipped.
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
		rate = st.low.Rate * widen
	case st.low == nil:
		rate = above.Rate / widen
	case above.Rate/st.low.Rate > step:
		rate = math.Sqrt(above.Rate * st.low.Rate)
	}
	if rate > 0 && rate <= s.Start*reach && rate >= s.Start/reach {
		return rate, false
	}
	if st.low == nil || st.low.unproven() >= spoiltMost {
		return 0, true
	}
	more := s.more(*st.low)
	if st.runs+more > most { // do not begin a tail that all runs together cannot measure
		more = s.confirm() - st.low.Kept
	}
	if more <= 0 {
		return 0, true
	}
	return st.low.Rate, false
}

// Kept is the result of the search on a curve.
type Kept struct {
	Rate  float64 // the highest that kept the objective; 0: none did
	Runs  int     // runs that kept it at this rate, and all runs made
	Fails float64 // the lowest failing rate; 0: none failed
	// Confirmed says that enough runs kept it, and that a rate at most 5 % higher fails.
	Confirmed bool
	Why       string // it is not confirmed, and what to do about it
	Blocked   bool   // runs that were spoilt or had a late generator ended the search
}

// Advice for a search that confirms no rate.
const (
	moreTime   = "give it more time with --budget"
	lessToDo   = "run the clients on a less busy machine, or use more --users"
	longerRuns = "make runs longer with --for"
)

// Found summarises the search so far.
func (s Search) Found(points []Point) Kept {
	st := s.look(points)
	k := Kept{Blocked: st.blocked != nil}
	if st.high != nil {
		k.Fails = st.high.Rate
	}
	per := func(t Trial) string { return figure.Number(t.Rate) + "/s" }
	switch {
	case len(st.trials) == 0:
		k.Why = "no rate was tried: " + moreTime
		return k
	case st.low == nil && st.blocked != nil:
		k.Why = fmt.Sprintf("at %s %s kept it: %s", per(*st.blocked), *st.blocked, lessToDo)
		return k
	case st.low == nil:
		k.Why = fmt.Sprintf("%s of %s, the lowest rate tried, did not keep it: allow more than %s with --slo",
			figure.Of(st.high.Failed, "run"), per(*st.high), s.Objective)
		return k
	}
	k.Rate, k.Runs = st.low.Rate, st.low.Kept
	switch {
	case st.blocked != nil:
		k.Why = fmt.Sprintf("and at %s %s: %s", per(*st.blocked), *st.blocked, lessToDo)
	case st.high == nil:
		k.Why = "and no failing rate was found: " + moreTime
	case k.Runs < s.confirm():
		k.Why = fmt.Sprintf("but %d are needed: %s", s.confirm(), moreTime)
	case st.low.acquires < needed(s.Objective.Quantile):
		k.Why = fmt.Sprintf("with %s timed, but %s needs %s: %s",
			figure.Of(st.low.acquires, "acquire"), dotted(s.Objective.name()),
			figure.Count(needed(s.Objective.Quantile)), longerRuns)
	case k.Fails/k.Rate > step*1.000001:
		k.Why = fmt.Sprintf("and no rate between it and %s/s was tried: %s", figure.Number(k.Fails), moreTime)
	default:
		k.Confirmed = true
		return k
	}
	k.Why = fmt.Sprintf("%s kept it in %s, %s", per(*st.low), *st.low, k.Why)
	return k
}

// keptOf returns the search result of a finished sweep for a setting.
func keptOf(s Sweep, of Setting) Kept {
	switch {
	case s.Objective == nil:
		return Kept{Why: "set --slo p99=20ms"}
	case len(s.Asked) > 0:
		return Kept{Why: "no search was made: omit --rate"}
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
