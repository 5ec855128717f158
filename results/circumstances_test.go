package results

import (
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// TestNothingIsSaidToHaveHindered: nothing is named if no client met an error and no process stood still.
func TestNothingIsSaidToHaveHindered(t *testing.T) {
	d := directory{env: Env{Clients: []ClientStats{{Name: "client-1"}}}}
	if why := d.hindered(Standstill{}); len(why) != 0 {
		t.Errorf("%q", why)
	}
	d.env.Clients[0].Errors = map[string]int64{"a": 3, "b": 2, "c": 1}
	if why, want := d.hindered(Standstill{}), []string{`errors of clients: "a" (3), "b" (2), "c" (1)`}; !slices.Equal(why, want) {
		t.Errorf("%q, want %q", why, want)
	}
}

// TestUnbittenInjections: one injection of an entry that bit is enough, and one that was deliberately not made says
// nothing of the others. A fault of the scenario that was never injected is named, with its place.
func TestUnbittenInjections(t *testing.T) {
	const pauseDid, killDid = "pause on holder did not bite: its receipt is not-installed ()", "kill on leader did not bite: its receipt is not-installed ()"
	pause := func(entry int, status history.ReceiptStatus) history.Fault {
		return history.Fault{Name: "pause", Selector: "holder", Entry: entry, Receipt: history.Receipt{Status: status}}
	}
	kill := func(entry int, status history.ReceiptStatus) history.Fault {
		return history.Fault{Name: "kill", Selector: "leader", Entry: entry, Receipt: history.Receipt{Status: status}}
	}
	chaos := scenarios.Scenario{Chaos: []scenarios.Injection{{Use: "pause"}, {Use: "kill"}}}
	steps := scenarios.Scenario{Steps: []scenarios.Step{{Do: "acquire"}, {Inject: "pause"}, {Inject: "kill"}}}
	for _, c := range []struct {
		name     string
		scenario scenarios.Scenario
		faults   []history.Fault
		want     []string
	}{
		{"the second of two bit", scenarios.Scenario{}, []history.Fault{pause(1, history.NotInstalled), pause(1, history.Installed)}, nil},
		{"one did not, and the next was not made", scenarios.Scenario{}, []history.Fault{pause(1, history.NotInstalled), pause(1, history.NotMade)}, []string{pauseDid}},
		{"one was not made, and the next did not", scenarios.Scenario{}, []history.Fault{pause(1, history.NotMade), pause(1, history.NotInstalled)}, []string{pauseDid}},
		{"two entries, and one bit", chaos, []history.Fault{pause(1, history.Installed), kill(2, history.NotInstalled)}, []string{killDid}},
		{"one was indeterminate, and the other did not", scenarios.Scenario{}, []history.Fault{pause(1, history.Indeterminate), pause(1, history.NotInstalled)}, []string{pauseDid}},
		{"every entry bit", chaos, []history.Fault{pause(1, history.Installed), kill(2, history.Installed)}, nil},
		{"one entry was never injected", chaos, []history.Fault{pause(1, history.Installed)}, []string{"kill was never injected (entry 2 of chaos)"}},
		{"one step was never injected", steps, []history.Fault{pause(2, history.Installed)}, []string{"kill was never injected (step 3)"}},
	} {
		d := directory{scenario: c.scenario, faults: c.faults}
		if got := d.notBitten(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestOnlyInstalledInjectionsBit: an indeterminate injection does not count as bitten.
func TestOnlyInstalledInjectionsBit(t *testing.T) {
	var d directory
	for _, s := range []history.ReceiptStatus{history.Installed, history.Installed, history.NotInstalled, history.Indeterminate, history.NotMade} {
		d.faults = append(d.faults, history.Fault{Name: "pause", Receipt: history.Receipt{Status: s}})
	}
	if c := d.circumstances(&Report{}, nil); c.bit != 2 || c.made != 4 {
		t.Errorf("%d bit of %d that were made, want 2 of 4", c.bit, c.made)
	}
}

// TestUnobservedHeals: an unobserved heal makes a run unknown. Exceptions are faults that were never installed,
// and those that the engine already reports.
func TestUnobservedHeals(t *testing.T) {
	healed := func(s history.ReceiptStatus) *history.Receipt { return &history.Receipt{Status: s} }
	for _, c := range []struct {
		receipt history.ReceiptStatus
		heal    *history.Receipt
		told    string
		want    int
	}{
		{history.Installed, nil, "", 0},
		{history.Installed, healed(history.Installed), "", 0},
		{history.Installed, healed(history.NotInstalled), "", 1},
		{history.Installed, healed(history.Indeterminate), "", 1},
		{history.Indeterminate, healed(history.Indeterminate), "", 1},
		{history.NotInstalled, healed(history.Indeterminate), "", 0},
		{history.NotMade, healed(history.Indeterminate), "", 0},
		{history.Installed, healed(history.NotInstalled), "heal of pause on n1: no answer", 0},
		{history.Installed, healed(history.NotInstalled), "heal of pause on n2: no answer", 1},
	} {
		d := directory{env: Env{Unknown: []string{c.told}}}
		d.faults = []history.Fault{{Name: "pause", Target: "n1", Receipt: history.Receipt{Status: c.receipt}, Healed: c.heal}}
		if why := d.notHealed(); len(why) != c.want {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestProcessesWithMissingEnds: last events may be missing of processes that were killed or dropped events, and of those that
// could not report before the run was cut short.
func TestProcessesWithMissingEnds(t *testing.T) {
	e := Env{Clients: []ClientStats{{Name: "well"}, {Name: "killed", Dead: true}, {Name: "gone", Lost: true}, {Name: "full", Dropped: 1}}}
	for _, e.Finished = range []bool{true, false} {
		for process, want := range map[string]bool{"well": false, "killed": true, "gone": true, "full": true, "silent": !e.Finished} {
			if got := e.lackingEnds()(process); got != want {
				t.Errorf("finished %t: of %s %t, want %t", e.Finished, process, got, want)
			}
		}
	}
}

// TestStandstillMakesAResultUnknown: a result that only a standstill decides is unknown. Of three violations two are
// excused, which leaves one.
func TestStandstillMakesAResultUnknown(t *testing.T) {
	c := circumstances{report: &Report{}, finding: map[string]*Finding{"late": {Excused: map[string]Excused{"late": {N: 2}}}}}
	for _, x := range []struct {
		op    string
		value float64
		want  Verdict
	}{
		{"<=", 0, Fail},
		{"<=", 1, Unknown},
		{"<=", 2, Unknown},
		{"<=", 3, Pass},
		{"=", 0, Fail},
		{"=", 1, Unknown},
		{"=", 2, Unknown},
		{"=", 3, Unknown},
		{"=", 4, Fail},
		{">", 0, Pass},
		{">", 1, Unknown},
		{">", 2, Unknown},
		{">", 3, Fail},
	} {
		if got, why := c.excusing(scenarios.Expectation{Name: "late", Op: x.op, Value: x.value}, 3, 3); got != x.want {
			t.Errorf("%s%g: %s (%s), want %s", x.op, x.value, got, why, x.want)
		}
	}
}

// TestLatenciesLackTheUnserved: more than one arrival in a hundred got no user.
func TestLatenciesLackTheUnserved(t *testing.T) {
	for share, want := range map[float64]string{
		0.01: "",
		0.05: "10 of 200 arrivals per second were not served: 5.0 % never got a user, and have no latency",
	} {
		r := &Report{Measures: map[string]*float64{"unserved_share": &share, "offered_per_s": new(200.0)}}
		if got := unserved(r, nil); got != want {
			t.Errorf("a share of %g: %q, want %q", share, got, want)
		}
	}
}

// TestALockWithoutAName: such a lock is shown by its number.
func TestALockWithoutAName(t *testing.T) {
	r := Run{Locks: []string{"a", "b"}}
	for i, want := range []string{"a", "b", "lock #2"} {
		if got := r.LockName(uint16(i)); got != want {
			t.Errorf("lock %d is called %q, want %q", i, got, want)
		}
	}
}

// TestAFindingShowsTenWitnesses and drops the rest.
func TestAFindingShowsTenWitnesses(t *testing.T) {
	var f Finding
	for range 2 * MaxWitnesses {
		f.Prove(Witness{})
	}
	if len(f.Witnesses) != 10 {
		t.Errorf("it shows %d", len(f.Witnesses))
	}
}
