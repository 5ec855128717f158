package results

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

// worse returns the worse of two verdicts of a run: fail, then unknown, then pass.
func worse(a, b Verdict) Verdict {
	if a == Fail || b == Fail {
		return Fail
	}
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return Pass
}

// report builds the report and evaluates the expectations. damage is why nothing could be judged.
func (d *directory) report(damage error) Report {
	e := d.env
	r := Report{
		Schema: ReportSchema, Scenario: d.scenario.Name, Claim: d.scenario.Claim, About: d.scenario.About,
		Verdict: Pass, Seed: e.Seed, Replay: e.Replay, Drawn: e.Drawn,
		Kept: e.Kept, KeptProof: e.KeptProof, Fresh: e.Fresh,
		Provider: e.Provider, Backend: e.Backend, Lock: e.Lock, Clients: clients(e), Program: e.Program,
		NoLock: e.NoLock, Judged: d.tally.judged, RunDir: d.dir,
		Versions: versions(e), Timings: map[string]int64{}, Counts: map[string]*int64{},
		Measures: map[string]*float64{}, Latency: map[string]Quantiles{},
		Reasons: []string{}, Strength: []string{}, Expectations: []ExpectationResult{}, Faults: []FaultResult{},
		Phases: []PhaseLatency{}, Findings: d.findings, Warnings: append([]string{}, e.Warnings...),
	}
	maps.Copy(r.Timings, e.Timings)
	for _, f := range d.findings {
		for name, n := range f.Counts {
			r.Counts[name] = n
		}
		for name, x := range f.Measures {
			r.Measures[name] = x
		}
		r.Failovers = append(r.Failovers, f.Failovers...)
		for _, w := range f.Warnings {
			r.Warnings = append(r.Warnings, f.Checker+": "+w)
		}
		for _, name := range slices.Sorted(maps.Keys(f.Excused)) {
			x := f.Excused[name]
			r.Warnings = append(r.Warnings,
				fmt.Sprintf("%s: %d of %d %s are due only to a standstill of a process of lockquake: %s",
					f.Checker, x.N, *f.Counts[name], name, x.Why))
		}
	}
	r.Warnings = append(append(r.Warnings, d.brokenAcquires(r.Measures)...), e.blames()...)
	r.Clocks = d.reportClocks(r.Counts)
	for _, f := range d.faults {
		r.Faults = append(r.Faults, d.faultResult(f))
	}
	if late := lateFaults(r.Faults); len(late) > 0 {
		r.Warnings = append(r.Warnings, "late faults prove no zero: "+someOf(late))
	}
	r.Warnings = append(r.Warnings, d.stoppedFromOutside(0)...)
	for _, name := range Operations {
		r.Latency[name] = Quantiles{}
	}
	if d.latency != nil {
		r.Latency = d.latency.Latency()
		r.Phases = append(r.Phases, d.latency.Phases()...)
	}
	if damage != nil {
		// The engine's reasons mostly explain the damage.
		r.Reasons = append(append(r.Reasons, damage.Error()), d.env.Unknown...)
		r.Verdict = Unknown
	}
	d.expect(&r, damage)
	return r
}

// NotRun returns the report of a run that was not made: unknown for the given reason, with nothing judged.
func NotRun(checkers Checkers, s scenarios.Scenario, provider, why string) Report {
	d := directory{checkers: checkers, scenario: s, env: Env{
		Provider: provider, Backend: s.Backend.Use, Lock: s.Backend.Lock, Seed: s.Run.Seed,
		Directed:   len(s.Steps) > 0 && s.Workload.Use == "",
		MustBeZero: checkers.MustBeZero(),
	}}
	for _, k := range checkers {
		d.findings = append(d.findings, nothingJudged(k, ""))
	}
	return d.report(fmt.Errorf("it was not run: %s", why))
}

// versions returns the versions of servers and libraries from the environment. Service entries whose name ends in
// "version" count.
func versions(e Env) map[string]string {
	out := map[string]string{}
	for name, value := range e.Service {
		if strings.HasSuffix(name, "version") {
			out[name] = value
		}
	}
	maps.Copy(out, e.Libraries)
	return out
}

// clients returns the client programs, and foreign programs in place of the resource, each once.
func clients(e Env) []ReportClient {
	out := []ReportClient{}
	for _, c := range e.Clients {
		if slices.Contains(e.ResourceNodes, c.Name) && !c.Foreign {
			continue
		}
		i := slices.IndexFunc(out, func(o ReportClient) bool { return reflect.DeepEqual(o.Client, c.Client) })
		if i < 0 {
			i, out = len(out), append(out, ReportClient{Client: c.Client})
		}
		out[i].Nodes = append(out[i].Nodes, c.Name)
	}
	return out
}

func (d *directory) faultResult(f history.Fault) FaultResult {
	end := f.End
	if end == 0 {
		end = max(f.Start, d.env.End)
		if f.Receipt.Status == history.NotInstalled || f.Receipt.Status == history.NotMade {
			end = f.Start
		}
	}
	return FaultResult{
		Name: f.Name, Selector: f.Selector, Target: f.Target, Params: f.Params, Misses: f.Misses, Receipt: f.Receipt,
		Healed:  f.Healed,
		StartMS: Milli(f.Start - d.env.Start), EndMS: Milli(end - d.env.Start),
		Late: d.lateness(f),
	}
}

// expect evaluates every expectation and takes the worst verdict. What makes the run itself unknown does so whatever
// was expected.
func (d *directory) expect(r *Report, damage error) {
	c := d.circumstances(r, damage)
	all := withDefaults(d.scenario.Expect, d.env)
	for _, x := range all {
		if x.Name != scenarios.Judged {
			continue
		}
		if n, what := r.Subject(); !x.Holds(float64(n)) {
			c.few = because(append([]string{fmt.Sprintf("only %s %s judged", figure.Of(n, what),
				map[bool]string{true: "was", false: "were"}[n == 1])}, d.hindered(c.stood)...))
		} else if !r.NoLock && !x.Holds(float64(r.Judged.Entitled)) {
			c.unentitled = fmt.Sprintf("only %s of %s were entitled: the others cannot be double grants",
				figure.Count(r.Judged.Entitled), figure.Of(r.Judged.Grants, "grant"))
		}
	}
	if c.unentitled == "" && !d.env.Directed && 2*d.tally.brief > r.Judged.Entitled {
		c.unentitled = fmt.Sprintf("%s of the %s entitled grants were valid for less than a tenth of the ttl: they hardly ever become double grants, whatever the lock does",
			figure.Count(d.tally.brief), figure.Count(r.Judged.Entitled))
	}
	c.unserved, c.outOfStep = unserved(r, all), outOfStep(r)
	if refuted := slices.Concat(d.env.Refuted, d.refusedSteps()); len(refuted) > 0 && damage == nil {
		r.Verdict = Fail
		r.Reasons = append(r.Reasons, refuted...)
		c.causes = slices.DeleteFunc(c.causes, func(why string) bool { return slices.Contains(refuted, why) })
	}
	if len(c.causes) > 0 {
		r.Verdict = worse(r.Verdict, Unknown)
	}
	for _, x := range all {
		res, applies := c.judge(x)
		if !applies {
			continue
		}
		r.Expectations = append(r.Expectations, res)
		r.Verdict = worse(r.Verdict, res.Verdict)
		if s := c.strength(x); s != "" && res.Verdict == Pass && (!x.Forced || slices.Contains(firstZeros, x.Name)) {
			r.Strength = append(r.Strength, s)
		}
	}
	for _, p := range d.scenario.Properties {
		r.Properties = append(r.Properties, c.property(p))
	}
	r.Uncovered = c.uncovered(r.Expectations)
	if damage != nil {
		r.Reasons = append(r.Reasons, c.causes...)
	} else { // reasons of a failure come before those of unknown figures
		ordered := c.causesFirst(r.Expectations)
		failed := slices.IndexFunc(ordered, func(x ExpectationResult) bool { return x.Verdict != Fail })
		if failed < 0 {
			failed = len(ordered)
		}
		r.Reasons = append(r.Reasons, slices.Concat(reasons(ordered[:failed]), c.causes, reasons(ordered[failed:]))...)
		if n := r.Counts["double_grants"]; n != nil && *n > 0 && r.Verdict == Fail {
			r.Reasons = append(r.Reasons, d.env.blames()...)
		}
	}
}

// causesFirst returns the failed expectations first, causes before what they explain.
//
// Example: a release of another user's lock lets a second holder in. foreign_releases comes before double_grants.
func (c *circumstances) causesFirst(all []ExpectationResult) []ExpectationResult {
	rank := func(x ExpectationResult) int {
		if x.Verdict != Fail {
			return 1
		}
		return -len(c.quantity[x.Name].Explains)
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b ExpectationResult) int { return rank(a) - rank(b) })
	return all
}

// refusedSteps returns the steps that had to be done, were not, and can only be blamed on the lock.
func (d *directory) refusedSteps() []string {
	var texts []string
	for _, m := range d.env.Missed {
		slack := d.env.TTL / 2
		if m.Within > 0 {
			slack = max(0, m.Within-d.env.Recovery)
		}
		disturbed := slices.ContainsFunc(d.run.Faults, func(f history.Fault) bool {
			return f.Start <= m.To && (f.End == 0 || f.End+d.env.Recovery > m.From)
		})
		if !disturbed && d.run.Still.Worst(m.From, m.To).Total <= slack {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// uncovered returns the counts of trouble above zero that no expectation names.
func (c *circumstances) uncovered(named []ExpectationResult) Uncovered {
	out := Uncovered{}
	for name, n := range c.report.Counts {
		tone := c.quantity[name].Tone
		if n != nil && *n > 0 && (tone == Violation || tone == Doubtful) &&
			!slices.ContainsFunc(named, func(x ExpectationResult) bool { return x.Name == name }) {
			out[name] = *n
		}
	}
	return out
}

// maxUnserved is the share of arrivals without a user above which the other latencies say little.
const maxUnserved = 0.01

// unserved says that the latencies of an open loop lack the unserved arrivals; "" if those are few, or expected.
func unserved(r *Report, all []scenarios.Expectation) string {
	share := r.Measures["unserved_share"]
	expected := slices.ContainsFunc(all, func(x scenarios.Expectation) bool {
		return x.Name == "unserved" ||
			x.Name == "unserved_share"
	})
	if share == nil || *share <= maxUnserved || expected {
		return ""
	}
	return fmt.Sprintf("%.0f of %.0f arrivals per second were not served: %.1f %% never got a user, and have no latency",
		*r.Measures["offered_per_s"]**share, *r.Measures["offered_per_s"], 100**share)
}

// maxLate is the share of late users above which users do not count as in step.
const maxLate = 0.05

// outOfStep says that users who were to ask at the same moment did not; "" if they did, or none were to.
func outOfStep(r *Report) string {
	share := r.Measures["late_askers_share"]
	if share == nil || *share <= maxLate {
		return ""
	}
	return fmt.Sprintf("%.1f %% of the users who should ask at the same moment were late: they were not in step",
		100**share)
}

// reasons lists the unmet expectations. Expectations left open by one cause share a line.
func reasons(all []ExpectationResult) []string {
	var lines, causes []string // a line for each failure; one for each cause
	who := map[string][]string{}
	others := map[string]int{} // by cause: defaults beyond the first ones
	for _, res := range all {
		name := res.Name + " " + res.Want
		found, cause, ok := strings.Cut(res.Reason, but)
		if ok {
			name = fmt.Sprintf("%s (%s)", name, found)
		} else {
			cause = res.Reason
		}
		switch {
		case res.Verdict == Fail:
			lines = append(lines, name+": "+res.Reason)
		case res.Verdict == Pass || cause == runUnknown:
		default:
			if who[cause] == nil {
				causes = append(causes, cause)
			}
			if !ok && res.Default && len(who[cause]) >= len(firstZeros) {
				others[cause]++
				continue
			}
			who[cause] = append(who[cause], name)
		}
	}
	for _, cause := range causes {
		if n := others[cause]; n > 0 {
			who[cause] = append(who[cause], fmt.Sprintf("%d other violations 0", n))
		}
		lines = append(lines, strings.Join(who[cause], ", ")+": "+cause)
	}
	return lines
}

const (
	// but joins what was found and why it proves nothing.
	but = ", but "
	// runUnknown is the reason of an expectation that is open because the whole run is; the run's reasons explain it.
	runUnknown = "the run itself is unknown"
)

// firstZeros are the counts that had to be 0 by default before runs recorded Env.MustBeZero.
var firstZeros = []string{"double_grants", "token_regressions", "foreign_releases"}

// withDefaults adds the default expectations of every run to those of the scenario, which take precedence.
func withDefaults(named []scenarios.Expectation, e Env) []scenarios.Expectation {
	zeros, least := e.MustBeZero, float64(scenarios.MinJudged)
	if zeros == nil {
		zeros = firstZeros
	}
	if e.Directed {
		least = 1
	}
	defaults := []scenarios.Expectation{}
	for _, name := range zeros {
		defaults = append(defaults, scenarios.Expectation{Name: name, Op: "=", Text: "0", Forced: true})
	}
	defaults = append(defaults, scenarios.Expectation{
		Name: scenarios.Judged, Op: ">=", Value: least,
		Text: fmt.Sprintf(">=%.0f", least), Forced: true,
	})
	all := slices.Clone(named)
	for _, x := range defaults {
		if !slices.ContainsFunc(all, func(y scenarios.Expectation) bool { return y.Name == x.Name }) {
			all = append(all, x)
		}
	}
	return all
}

// because joins reasons for people.
func because(why []string) string { return strings.Join(why, "; ") }

// reportClocks returns the clock section of the report, or nil.
func (d *directory) reportClocks(counts map[string]*int64) *ReportClocks {
	n := 0
	for i := range d.run.Processes {
		if !d.run.Processes[i].Exact() {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	of := int64(0)
	for _, f := range d.findings {
		of += f.Chances["unsure_pairs"].N
	}
	return &ReportClocks{
		Compared: n, UnsureOf: of, MaxErrorMS: Milli(d.tally.clockError), UnsurePairs: counts["unsure_pairs"],
		Unordered:  counts["unordered_effects"],
		ByResource: d.tally.judged.Effects > 0,
	}
}
