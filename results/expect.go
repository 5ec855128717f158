package results

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

// judge evaluates one expectation on the report. applies is false for a default, or for an expectation that any count
// meets, if the run lacks its property, such as tokens.
func (c *circumstances) judge(x scenarios.Expectation) (res ExpectationResult, applies bool) {
	res = ExpectationResult{Name: x.Name, Want: x.Text, Verdict: Unknown, Default: x.Forced}
	if c.damage != nil {
		res.Reason = "nothing was judged"
		return res, true
	}
	switch x.Name {
	case scenarios.Judged:
		return c.judged(x, res), true
	case scenarios.Bit:
		return c.bitten(x, res), true
	}
	got, ratio := c.value(x.Name)
	f := c.finding[x.Name]
	switch {
	case got == nil && f != nil && (x.Forced || x.Free()) &&
		(f.Skipped != "" || len(f.Warnings) == 0): // a lock without loss notifications has no untold losses
		return res, false
	case got == nil:
		res.Reason = c.notJudged(x.Name)
		return res, true
	}
	value := *got
	if x.Unit == "%" {
		value = 100 * ratio
	}
	if x.Unit == "ms" && !IsTime(x.Name) {
		res.Got, res.Reason = got, "it is no duration"
		return res, true
	}
	res.Got = &value
	switch n := c.report.Counts[x.Name]; {
	case len(c.steps) > 0 && !c.quantity[x.Name].Timeless:
		res.Reason = found(value) + but + because(c.steps)
	case n != nil:
		res.Verdict, res.Reason = c.excusing(x, value, *n)
	default:
		res.Verdict, res.Reason = c.measured(x, value)
	}
	if doubts := append(slices.Clone(c.late), c.stopped...); res.Verdict == Fail && len(doubts) > 0 &&
		!c.certain(x, value) {
		res.Verdict, res.Reason = Unknown, res.Reason+but+someOf(doubts)
	}
	if res.Verdict == Fail && c.outOfStep != "" && c.quantity[x.Name].InStep {
		res.Verdict, res.Reason = Unknown, res.Reason+but+c.outOfStep
	}
	return res, true
}

// property answers one question of the scenario about the lock.
func (c *circumstances) property(p scenarios.Property) Property {
	by, applies := c.judge(p.By)
	out := Property{Name: p.Name, By: by, Answer: string(Unknown)}
	switch {
	case !applies:
	case by.Verdict == Pass:
		out.Answer = "yes"
	case by.Verdict == Fail:
		out.Answer = "no"
	}
	return out
}

// certain reports whether a figure proves a broken promise, however long and whenever a fault stood. The checkers do
// not know about servers stopped from outside, so in such a run only firstZeros are certain.
func (c *circumstances) certain(x scenarios.Expectation, v float64) bool {
	q := c.quantity[x.Name]
	if len(c.stopped) > 0 && !slices.Contains(firstZeros, x.Name) {
		return false
	}
	return forbids(x) && v > x.Value && q.Tone == Violation && !q.Outlived && c.report.Counts[x.Name] != nil
}

// forbids reports whether an expectation sets an upper bound.
func forbids(x scenarios.Expectation) bool { return x.Op == "=" || x.Op == "<" || x.Op == "<=" }

// bitten evaluates an expectation on the number of injections that bit. Too few is never a failure.
func (c *circumstances) bitten(x scenarios.Expectation, res ExpectationResult) ExpectationResult {
	n := float64(c.bit)
	if x.Unit == "%" {
		n = 100 * n / float64(max(c.made, 1))
	}
	res.Got = &n
	if x.Holds(n) {
		res.Verdict = Pass
	} else {
		res.Reason = fmt.Sprintf("%d of %d injections bit", c.bit, c.made)
		if len(c.late) > 0 {
			res.Reason += " in time: " + someOf(c.late)
		}
	}
	return res
}

// excusing evaluates an expectation on a count that may partly result from standstills of lockquake's processes. If
// that part decides, the answer is unknown. In a run with steps users hold for as long as they are told to, so there
// a demanded violation counts in any case.
func (c *circumstances) excusing(x scenarios.Expectation, v float64, n int64) (Verdict, string) {
	e, ok := c.excused(x.Name)
	if !ok || c.run.Stepped && x.Holds(v) {
		return c.counted(x, v)
	}
	sure := v * float64(n-e.N) / float64(n)
	if x.Holds(sure) != x.Holds(v) || x.Op == "=" && sure < x.Value && x.Value < v {
		return Unknown, fmt.Sprintf("%s%s%d of them due only to a standstill of a process of lockquake: %s", found(v), but,
			e.N, e.Why)
	}
	return c.counted(x, v)
}

// excused returns the part of a count that a standstill explains.
func (c *circumstances) excused(name string) (e Excused, ok bool) {
	if f := c.finding[name]; f != nil {
		e, ok = f.Excused[name]
	}
	return e, ok
}

// digits formats a deciding value without needless decimals.
func digits(v float64) string { return figure.Exact(math.Round(v*1e3) / 1e3) }

func found(v float64) string { return "found " + digits(v) }

// judged evaluates an expectation on the amount judged. Too little is never a failure.
func (c *circumstances) judged(x scenarios.Expectation, res ExpectationResult) ExpectationResult {
	judged, _ := c.report.Subject()
	n := float64(judged)
	res.Got = &n
	if x.Holds(n) {
		res.Verdict = Pass
	} else {
		res.Reason = c.few
	}
	return res
}

// value returns a count or a measure. ratio is the meaning of a percentage. For a count it is the share of the judged
// grants, or of the accesses if there is no lock. For a measure it is the measure itself.
func (c *circumstances) value(name string) (got *float64, ratio float64) {
	if n := c.report.Counts[name]; n != nil {
		v := float64(*n)
		if judged, _ := c.report.Subject(); judged > 0 {
			ratio = v / float64(judged)
		}
		return &v, ratio
	}
	if m := c.report.Measures[name]; m != nil {
		v := *m
		return &v, v
	}
	return nil, 0
}

func (c *circumstances) notJudged(name string) string {
	f := c.finding[name]
	switch {
	case f == nil:
		return "there is no such count or measure"
	case f.Skipped != "":
		return "it was not judged: " + f.Skipped
	case len(f.Warnings) > 0:
		return "it was not judged: " + because(f.Warnings)
	}
	return "it was not judged"
}

// counted evaluates an expectation on a count. A count is a lower bound: every violation found is certain, but some
// may have been missed.
func (c *circumstances) counted(x scenarios.Expectation, v float64) (Verdict, string) {
	forbids := forbids(x)
	switch {
	case v > 0 && len(c.run.Lost) > 0 && c.quantity[x.Name].NeedsAll:
		return Unknown, found(v) + but + "its cause may be among the missing events"
	case v > 0 && c.dropped > 0 && (c.quantity[x.Name].NeedsEnds || c.quantity[x.Name].NeedsAll):
		return Unknown, found(v) + but + "the end of a hold may be among the dropped events"
	case v == 0 && x.Holds(v) && len(c.blind) > 0: // even if any count would do: without a bite it shows nothing
		return Unknown, because(c.blind)
	case x.Holds(v) && !forbids:
		return Pass, ""
	case x.Holds(v):
		return c.sound(x.Name)
	case forbids && (x.Op != "=" || v > x.Value):
		return Fail, found(v)
	}
	// a run that could not have shown a violation does not prove its absence
	if verdict, why := c.sound(x.Name); verdict != Pass {
		return verdict, found(v) + but + why
	}
	return Fail, found(v)
}

// measured evaluates an expectation on a measure, which only means something in a run that went as planned.
func (c *circumstances) measured(x scenarios.Expectation, v float64) (Verdict, string) {
	least, stood := c.without(x.Name, v)
	switch {
	case x.Holds(v):
		return c.sound(x.Name)
	case IsTime(x.Name) && (x.Holds(least) || x.Op == "=" && least < x.Value &&
		x.Value < v): // a missed lower bound stays missed
		return Unknown, "measured " + digits(v) + but + stood.Text(c.run)
	case !IsTime(x.Name) && c.few != "": // a ratio or a rate of too few
		return Unknown, "measured " + digits(v) + but + c.few
	case x.Op == ">" || x.Op == ">=" || x.Op == "=":
		if verdict, why := c.sound(x.Name); verdict != Pass {
			return verdict, "measured " + digits(v) + but + why
		}
	}
	return Fail, fmt.Sprintf("measured %s", digits(v))
}

// without returns the least that a time (ms) would have been without the standstills in it, and the longest
// standstill meanwhile. Of several times whose longest is meant, it is the one that is longest without them. If the
// window of the time is unknown, all standstills of the run count. For a latency, the fullest window of its length
// gives the upper bound.
//
// Example: the longest wait is 1,810 ms. Processes stood still for 120 ms of it, and for 2,534 ms of the whole run.
// It would have been 1,690 ms.
func (c *circumstances) without(name string, v float64) (least float64, x Standstill) {
	f := c.finding[name]
	if f == nil {
		f = &Finding{}
	}
	spans := f.Spans[name]
	switch {
	case len(spans) > 0:
	case f.Checker == "latency":
		w := c.run.Still.fullest(int64(v * 1e6))
		return v - Milli(c.run.Still.inside(w)), c.run.Still.Worst(w.From, w.To)
	default:
		return v - Milli(c.stood.Total), c.stood
	}
	for i, w := range spans {
		delay := c.run.Still.Delay(w.From, w.To, AnyProcess)
		if w.Queued {
			delay = c.run.Still.inside(w.Interval)
		}
		if left := Milli(w.Length - delay); i == 0 || left > least {
			least, x = left, c.run.Still.Worst(w.From, w.To)
		}
	}
	return least, x
}

// sound passes a small figure if the run could have shown a larger one.
func (c *circumstances) sound(name string) (Verdict, string) {
	why := c.weak
	if f := c.finding[name]; f != nil && f.Verdict == Unknown && f.Checker != "stalls" && f.Skipped == "" &&
		len(f.Missing) == 0 {
		why = append(append([]string{}, f.Warnings...), why...)
	}
	if c.few != "" {
		why = append(slices.Clone(why), c.few)
	}
	if c.unserved != "" && c.finding[name] != nil && c.finding[name].Checker == "latency" {
		why = append(slices.Clone(why), c.unserved)
	}
	if c.unentitled != "" && name == "double_grants" {
		why = append(slices.Clone(why), c.unentitled)
	}
	if len(why) > 0 {
		return Unknown, because(why)
	}
	if len(c.causes) > 0 {
		return Unknown, runUnknown
	}
	return Pass, ""
}

// fewChances is the number of chances below which the rule of three says nothing useful.
const fewChances = 100

// strength says what a zero is worth: with n chances, a rate of 3/n or more would have shown with 95 % probability.
func (c *circumstances) strength(x scenarios.Expectation) string {
	f, got := c.finding[x.Name], c.report.Counts[x.Name]
	if f == nil || got == nil || *got != 0 || !x.Holds(0) || f.Chances[x.Name].Of == "" {
		return ""
	}
	chances := f.Chances[x.Name]
	zero := fmt.Sprintf("0 %s in %s %s", figure.Words(x.Name), figure.Count(chances.N), chances.Of)
	if chances.N < fewChances {
		zero += ": too few to bound a rate"
	} else {
		zero = fmt.Sprintf("%s: the rate is below 3/%s = %.2g %% with 95 %% confidence", zero, figure.Count(chances.N),
			300/float64(chances.N))
	}
	if c.bit < c.made {
		zero += fmt.Sprintf("; bit %d of %d", c.bit, c.made)
	}
	return zero
}
