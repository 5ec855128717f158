package results

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// circumstances holds what makes an expectation doubtful, next to the figure itself.
type circumstances struct {
	report     *Report
	finding    map[string]*Finding // by the name of a count or measure
	quantity   map[string]Quantity // likewise
	causes     []string            // why the run is unknown, whatever was expected
	weak       []string            // why a zero proves nothing
	blind      []string            // why a count of zero findings proves nothing
	few        string              // non-empty if too few grants were judged for a zero to mean anything
	unentitled string              // likewise if too few of them were entitled for a zero of double grants
	unserved   string              // non-empty if so many arrivals were not served that the other latencies say little
	outOfStep  string              // non-empty if many users missed the moment at which all were to ask
	steps      []string            // how the machine's wall clock moved, if the lock's time depends on it
	stood      Standstill          // the process that stood still the longest
	late       []string            // which faults were late
	stopped    []string            // which servers were stopped from outside
	bit, made  int                 // injections that bit, and all injections made
	run        Run
	dropped    int64 // events that are missing
	damage     error
}

// circumstances collects the reasons why a violation may have gone unnoticed.
func (d *directory) circumstances(r *Report, damage error) *circumstances {
	c := &circumstances{
		report: r, finding: map[string]*Finding{}, quantity: map[string]Quantity{}, damage: damage,
		run: d.run,
	}
	for _, q := range d.checkers.Quantities() {
		c.quantity[q.Name] = q
	}
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
	c.late = lateFaults(r.Faults)
	c.stopped = d.stoppedFromOutside(d.env.TTL / 2) // then a zero proves little, as after such a client standstill
	c.steps = d.clockSteps()
	c.stood = d.run.Still.Worst(d.run.Start, max(d.run.Start, d.run.End))
	for _, f := range d.faults {
		if f.Receipt.Status != history.NotMade {
			c.made++
		}
		if f.Receipt.Status == history.Installed && d.lateness(f) == "" {
			c.bit++
		}
	}
	c.weak = append(c.weak, c.blind...)
	c.weak = append(c.weak, c.stopped...)
	for _, f := range r.Findings {
		if f.Checker == "stalls" && f.Verdict == Unknown {
			c.weak = append(c.weak, f.Warnings...)
		}
	}
	return c
}

// causes returns why the run as a whole is unknown: events may be missing from its history, or it did not end
// properly.
func (d *directory) causes(dropped int64) []string {
	var why []string
	switch {
	case !d.env.Finished:
		why = append(why, "the run was cut short: the supervisor ended before the run did")
	case d.env.Interrupted:
		why = append(why, "the run was interrupted")
	}
	for _, reason := range d.env.Unknown {
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	for i := range d.run.Lost {
		why = append(why, d.run.Lost[i].reason(d.run))
	}
	if dropped > 0 {
		why = append(why, fmt.Sprintf("at least %d events were dropped because buffers were full", dropped))
	}
	if !d.env.Recovered && d.env.Finished {
		why = append(why, "after the last heal the service was not seen serving again")
	}
	if !d.env.FinalRead && d.env.Resource != "" && d.env.Finished {
		why = append(why, "there was no final read")
	}
	return append(why, d.notHealed()...)
}

// notHealed names the faults whose heal was not observed. Later events were judged as if the fault were gone.
func (d *directory) notHealed() []string {
	var why []string
	for _, f := range d.faults {
		if f.Healed == nil || f.Healed.Status == history.Installed || f.Receipt.Status == history.NotInstalled ||
			f.Receipt.Status == history.NotMade {
			continue
		}
		told := func(reason string) bool {
			return strings.HasPrefix(reason, fmt.Sprintf("heal of %s on %s", f.Name, f.Target))
		}
		if !slices.ContainsFunc(d.env.Unknown, told) {
			why = append(why, fmt.Sprintf("the heal of %s on %s is not confirmed: its receipt is %s (%s)",
				f.Name, f.Selector, f.Healed.Status, f.Healed.Evidence))
		}
	}
	return why
}

// maxErrors bounds how many errors hindered names.
const maxErrors = 3

// hindered returns what prevented grants: the most frequent client errors, and the process that stood still the
// longest.
func (d *directory) hindered(stood Standstill) (why []string) {
	met := d.env.clientErrors()
	var errs []string
	var others int64
	for _, text := range mostOften(met) {
		if len(errs) < maxErrors {
			errs = append(errs, fmt.Sprintf("%q (%d)", text, met[text]))
		} else {
			others += met[text]
		}
	}
	if others > 0 {
		errs = append(errs, fmt.Sprintf("others (%d)", others))
	}
	if len(errs) > 0 {
		why = append(why, "errors of clients: "+strings.Join(errs, ", "))
	}
	if stood.Total > 0 {
		why = append(why, stood.Text(d.run))
	}
	return why
}

// clockSteps returns how the machine's wall clock moved during the run, if the service ends grants by it.
func (d *directory) clockSteps() []string {
	var why []string
	for _, s := range d.env.ClockSteps {
		if d.env.WallClock && s.Time >= d.env.Start {
			why = append(why, fmt.Sprintf("the machine's wall clock moved by %.3f ms against its monotonic one at %s, and grants of the service expire by it",
				Milli(s.By), d.run.MS(s.Time)))
		}
	}
	return why
}

// dropped returns the minimum number of missing events.
func (d *directory) dropped() int64 {
	n := d.tally.dropped
	for _, c := range d.env.Clients {
		n = max(n, c.Dropped)
	}
	return n
}

// notBitten names the faults of the scenario that did not bite, or not in time. One of several injections of an entry
// is enough.
func (d *directory) notBitten() []string {
	type entry struct {
		number                 int // of the scenario's entry, if known; else the rest identifies it
		name, selector, params string
	}
	var order []entry
	bit := map[entry]bool{}
	// of the injections that bit: whether one was in time, and the delay of the last one
	inTime, late := map[entry]bool{}, map[entry]string{}
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
			continue // another injection of this entry was made, and counts
		}
		last[x] = f
		bit[x] = bit[x] || f.Receipt.Status == history.Installed
		if f.Receipt.Status == history.Installed {
			late[x] = d.lateness(f)
			inTime[x] = inTime[x] || late[x] == ""
		}
		if f.Receipt.Status != history.NotMade {
			all++
		}
		injected[f.Name] = true
	}
	var why []string
	for _, x := range order {
		if bit[x] && !inTime[x] {
			why = append(why, fmt.Sprintf("%s on %s %s", x.name, last[x].Selector, late[x]))
		}
		if f := last[x]; !bit[x] && f.Receipt.Status != history.NotMade {
			why = append(why, fmt.Sprintf("%s on %s did not bite: its receipt is %s (%s)", f.Name, f.Selector,
				f.Receipt.Status, f.Receipt.Evidence))
		}
	}
	if all == 0 && len(d.faults) > 0 {
		why = append(why, fmt.Sprintf("none of %d injections was made: the promises of the schedule forbade each",
			len(d.faults)))
	}
	for _, p := range plannedFaults(d.scenario) {
		_, ok := last[entry{number: p.number, name: p.name}]
		switch {
		case numbered && !ok:
			why = append(why, fmt.Sprintf("%s was never injected (%s)", p.name, p.where))
		case !injected[p.name]: // old records have no numbers
			injected[p.name] = true
			why = append(why, p.name+" was never injected")
		}
	}
	return why
}

// planned is a fault named in the scenario.
type planned struct {
	name   string
	number int // as in history.Fault.Entry
	where  string
}

// plannedFaults returns the faults that the scenario names.
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
