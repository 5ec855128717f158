package results

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
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

// report lays out what was found and holds the expectations against it. damage is why nothing could be judged.
func (d *docket) report(damage error) Report {
	e := d.env
	r := Report{
		Schema: ReportSchema, Scenario: d.scenario.Name, Claim: d.scenario.Claim, Verdict: Pass, Seed: e.Seed, Replay: e.Replay,
		Provider: e.Provider, Backend: e.Backend, Lock: e.Lock, Judged: d.tally.judged, RunDir: d.dir,
		Counts: map[string]*int64{}, Measures: map[string]*float64{}, Latency: map[string]Quantiles{},
		Reasons: []string{}, Strength: []string{}, Expectations: []ExpectationResult{}, Faults: []FaultResult{},
		Phases: []PhaseLatency{}, Findings: d.findings, Warnings: append([]string{}, e.Warnings...),
	}
	for _, f := range d.findings {
		for name, n := range f.Counts {
			r.Counts[name] = n
		}
		for name, x := range f.Measures {
			r.Measures[name] = x
		}
		for _, w := range f.Warnings {
			r.Warnings = append(r.Warnings, f.Checker+": "+w)
		}
	}
	for _, f := range d.faults {
		r.Faults = append(r.Faults, d.faultResult(f))
	}
	for _, name := range opNames {
		r.Latency[name] = Quantiles{}
	}
	if d.latency != nil {
		r.Latency = d.latency.all(func(stretch) bool { return true })
		r.Phases = append(r.Phases, d.latency.phases()...)
	}
	if damage != nil {
		r.Reasons = append(r.Reasons, damage.Error())
		r.Verdict = Unknown
	}
	d.expect(&r, damage)
	return r
}

func (d *docket) faultResult(f history.Fault) FaultResult {
	end := f.End
	if end == 0 {
		end = max(f.Start, d.env.End)
		if f.Receipt.Status == history.NotInstalled {
			end = f.Start
		}
	}
	return FaultResult{
		Name: f.Name, Target: f.Target, Params: f.Params, Misses: f.Misses, Receipt: f.Receipt, Healed: f.Healed,
		StartMS: milli(f.Start - d.env.Start), EndMS: milli(end - d.env.Start),
	}
}

// expect holds every expectation against the report and takes the worst.
func (d *docket) expect(r *Report, damage error) {
	c := d.court(r, damage)
	all := withDefaults(d.scenario.Expect, d.env.Directed)
	for _, x := range all {
		if x.Name == scenarios.Judged && !x.Holds(float64(r.Judged.Grants)) {
			c.few = fmt.Sprintf("only %d grants were judged", r.Judged.Grants)
		}
	}
	for _, x := range all {
		res, applies := c.judge(x)
		if !applies {
			continue
		}
		r.Expectations = append(r.Expectations, res)
		r.Verdict = worse(r.Verdict, res.Verdict)
		if res.Verdict != Pass && damage == nil {
			r.Reasons = append(r.Reasons, fmt.Sprintf("%s %s: %s", res.Name, res.Want, res.Reason))
		}
		if s := c.strength(x); s != "" {
			r.Strength = append(r.Strength, s)
		}
	}
}

// withDefaults lays what the scenario expects over what every run must meet.
func withDefaults(named []scenarios.Expectation, directed bool) []scenarios.Expectation {
	least := float64(scenarios.MinJudged)
	if directed {
		least = 1
	}
	all := slices.Clone(named)
	for _, x := range []scenarios.Expectation{
		{Name: "double_grants", Op: "=", Text: "0", Forced: true},
		{Name: "token_regressions", Op: "=", Text: "0", Forced: true},
		{Name: "foreign_releases", Op: "=", Text: "0", Forced: true},
		{Name: scenarios.Judged, Op: ">=", Value: least, Text: fmt.Sprintf(">=%.0f", least), Forced: true},
	} {
		if !slices.ContainsFunc(all, func(y scenarios.Expectation) bool { return y.Name == x.Name }) {
			all = append(all, x)
		}
	}
	return all
}

// court is what an expectation is held against.
type court struct {
	report  *Report
	finding map[string]*Finding // by the name of a count or measure
	weak    []string            // why a zero proves nothing
	blind   []string            // why not finding something proves nothing
	few     string              // that too few grants were judged for a zero to mean something
	damage  error
}

// court collects why what was not found may have been there.
func (d *docket) court(r *Report, damage error) *court {
	c := &court{report: r, finding: map[string]*Finding{}, damage: damage}
	for i := range r.Findings {
		f := &r.Findings[i]
		for name := range f.Counts {
			c.finding[name] = f
		}
		for name := range f.Measures {
			c.finding[name] = f
		}
	}
	if damage != nil {
		return c
	}
	c.blind = append(c.blind, d.truncated()...)
	c.blind = append(c.blind, d.notBitten()...)
	c.weak = append(c.weak, c.blind...)
	if !d.env.Recovered && d.env.Finished {
		c.weak = append(c.weak, "the service was not seen to serve again after the last heal")
	}
	if !d.env.FinalRead && d.env.Resource != "" && d.env.Finished {
		c.weak = append(c.weak, "there was no final read")
	}
	for _, f := range r.Findings {
		if f.Checker == "stalls" && f.Verdict == Unknown {
			c.weak = append(c.weak, f.Warnings...)
		}
	}
	return c
}

// truncated says why the history may lack what happened.
func (d *docket) truncated() []string {
	var why []string
	switch {
	case !d.env.Finished:
		why = append(why, "the run was cut short: the harness did not come to its end")
	case d.env.Interrupted:
		why = append(why, "the run was interrupted")
	}
	why = append(why, d.env.Unknown...)
	dropped := d.tally.dropped
	for _, c := range d.env.Clients {
		dropped = max(dropped, c.Dropped)
	}
	if dropped > 0 {
		why = append(why, fmt.Sprintf("%d events or more were dropped for want of room", dropped))
	}
	return why
}

// notBitten names the faults of the scenario that did not bite at all. One of several injections of an entry is enough.
func (d *docket) notBitten() []string {
	type entry struct{ name, selector, params string }
	var order []entry
	bit := map[entry]bool{}
	last := map[entry]history.Fault{}
	injected := map[string]bool{}
	for _, f := range d.faults {
		x := entry{f.Name, f.Selector, f.Params}
		if _, ok := last[x]; !ok {
			order = append(order, x)
		}
		last[x] = f
		bit[x] = bit[x] || f.Receipt.Status == history.Installed
		injected[f.Name] = true
	}
	var why []string
	for _, x := range order {
		if !bit[x] {
			r := last[x].Receipt
			why = append(why, fmt.Sprintf("%s on %s did not bite: its receipt is %s (%s)", x.name, x.selector, r.Status, r.Evidence))
		}
	}
	for _, name := range plannedFaults(d.scenario) {
		if !injected[name] {
			injected[name] = true
			why = append(why, name+" was never injected")
		}
	}
	return why
}

// plannedFaults lists the faults that the scenario names.
func plannedFaults(s scenarios.Scenario) []string {
	var names []string
	for _, c := range s.Chaos {
		names = append(names, c.Use)
	}
	for _, st := range s.Steps {
		if st.Inject != "" {
			names = append(names, st.Inject)
		}
	}
	return names
}

// because joins reasons for people.
func because(why []string) string { return strings.Join(why, "; ") }
