package results

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// court is what an expectation is held against.
type court struct {
	report       *Report
	finding      map[string]*Finding // by the name of a count or measure
	causes       []string            // why the run is unknown, whatever was expected
	weak         []string            // why a zero proves nothing
	blind        []string            // why not finding something proves nothing
	few          string              // that too few grants were judged for a zero to mean something
	dropped      int64               // events that are missing
	acknowledged int64               // writes that a client saw done
	damage       error
}

// court collects why what was not found may have been there.
func (d *docket) court(r *Report, damage error) *court {
	c := &court{report: r, finding: map[string]*Finding{}, damage: damage, acknowledged: d.tally.acknowledged}
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
	c.dropped = d.dropped()
	c.causes = d.causes(c.dropped)
	c.blind = d.notBitten()
	c.weak = append(c.weak, c.blind...)
	for _, f := range r.Findings {
		if f.Checker == "stalls" && f.Verdict == Unknown {
			c.weak = append(c.weak, f.Warnings...)
		}
	}
	return c
}

// causes says why the run is unknown as a whole: its history may lack what happened, or it did not end as it must.
func (d *docket) causes(dropped int64) []string {
	var why []string
	switch {
	case !d.env.Finished:
		why = append(why, "the run was cut short: the supervisor did not come to its end")
	case d.env.Interrupted:
		why = append(why, "the run was interrupted")
	}
	for _, reason := range d.env.Unknown {
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	if dropped > 0 {
		why = append(why, fmt.Sprintf("%d events or more were dropped for want of room", dropped))
	}
	if !d.env.Recovered && d.env.Finished {
		why = append(why, "the service was not seen to serve again after the last heal")
	}
	if !d.env.FinalRead && d.env.Resource != "" && d.env.Finished {
		why = append(why, "there was no final read")
	}
	return why
}

// dropped is how many events are missing, at least.
func (d *docket) dropped() int64 {
	n := d.tally.dropped
	for _, c := range d.env.Clients {
		n = max(n, c.Dropped)
	}
	return n
}

// notBitten names the faults of the scenario that did not bite at all. One of several injections of an entry is enough.
func (d *docket) notBitten() []string {
	type entry struct {
		number                 int // of the scenario's entry, where it is known; else the rest tells entries apart
		name, selector, params string
	}
	var order []entry
	bit := map[entry]bool{}
	last := map[entry]history.Fault{}
	injected := map[string]bool{}
	numbered := false
	all := 0
	for _, f := range d.faults {
		x := entry{name: f.Name, selector: f.Selector, params: f.Params}
		if f.Entry > 0 {
			x, numbered = entry{number: f.Entry, name: f.Name}, true
		}
		if _, ok := last[x]; !ok {
			order = append(order, x)
		}
		if l, ok := last[x]; f.Receipt.Status == history.NotMade && ok && l.Receipt.Status != history.NotMade {
			continue // another one of this entry was made, and tells
		}
		last[x] = f
		bit[x] = bit[x] || f.Receipt.Status == history.Installed
		if f.Receipt.Status != history.NotMade {
			all++
		}
		injected[f.Name] = true
	}
	var why []string
	for _, x := range order {
		if f := last[x]; !bit[x] && f.Receipt.Status != history.NotMade {
			why = append(why, fmt.Sprintf("%s on %s did not bite: its receipt is %s (%s)", f.Name, f.Selector, f.Receipt.Status, f.Receipt.Evidence))
		}
	}
	if all == 0 && len(d.faults) > 0 {
		why = append(why, fmt.Sprintf("none of %d injections was made: what the schedule promises forbade each", len(d.faults)))
	}
	for _, p := range plannedFaults(d.scenario) {
		_, ok := last[entry{number: p.number, name: p.name}]
		switch {
		case numbered && !ok:
			why = append(why, fmt.Sprintf("%s was never injected (%s)", p.name, p.where))
		case !numbered && !injected[p.name]:
			injected[p.name] = true
			why = append(why, p.name+" was never injected")
		}
	}
	return why
}

// planned is a fault that the scenario names.
type planned struct {
	name   string
	number int // as in history.Fault.Entry
	where  string
}

// plannedFaults lists the faults that the scenario names.
func plannedFaults(s scenarios.Scenario) []planned {
	var list []planned
	for i, c := range s.Chaos {
		list = append(list, planned{c.Use, i + 1, fmt.Sprintf("entry %d of chaos", i+1)})
	}
	for i, st := range s.Steps {
		if st.Inject != "" {
			list = append(list, planned{st.Inject, i + 1, fmt.Sprintf("step %d", i+1)})
		}
	}
	return list
}
