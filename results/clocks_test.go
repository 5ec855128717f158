package results

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
)

func TestTheClocksOfClients(t *testing.T) {
	r := Run{Processes: []history.Header{
		{Process: "client-3", ErrorNS: 7}, {Process: "client-1"}, {Process: "register", ErrorNS: 9}, {Process: "client-2", Clock: clockOf(t, 100, 5)},
	}}
	cs := r.Clocks()
	for client, want := range []int64{0, 7, 7, 0, 0} {
		u := history.MakeUser(client, 3)
		if late, early := cs.Late(u, 100)-100, 100-cs.Early(u, 100); late != want || early != want {
			t.Errorf("client %d errs by %d and %d, want %d", client+1, late, early, want)
		}
		if cs.Late(u, Forever) != Forever || cs.Early(u, Forever) != Forever {
			t.Errorf("client %d: for ever is no time", client+1)
		}
	}
	if cs := (&Run{Processes: []history.Header{{Process: "client-1"}, {Process: "register", ErrorNS: 9}}}).Clocks(); len(cs) != 0 {
		t.Errorf("clocks of one machine: %v", cs)
	}
}

// clockOf returns a clock that was measured once, at its own time.
func clockOf(t *testing.T, at, err int64) *history.Clock {
	t.Helper()
	c, bad := history.NewClock([]history.Measurement{{At: at, ErrorNS: err}})
	if bad != nil {
		t.Fatal(bad)
	}
	return c
}

func TestClockNotes(t *testing.T) {
	d := directory{run: Run{Processes: []history.Header{{Process: "client-1"}}}}
	if c := d.reportClocks(nil); c != nil {
		t.Errorf("of one clock: %s", c.Text())
	}
	d.run.Processes = append(d.run.Processes, history.Header{Process: "client-2", ErrorNS: 5}, history.Header{Process: "register", ErrorNS: 5})
	d.tally.clockError = 612_000
	d.findings = []Finding{{}, {Chances: map[string]Chances{"unsure_pairs": {N: 1600}}}}
	n := int64(4)
	text := d.reportClocks(map[string]*int64{"unsure_pairs": &n}).Text()
	if want := "2 of the run's clocks were compared with the engine's; the error of times is at most 0.612 ms. "; !strings.HasPrefix(text, want) || !strings.Contains(text, "4 pairs of holds lies within it, for 1600 grants that followed another user's (0.25 %), and") || strings.Contains(text, "Stale") {
		t.Errorf("%q", text)
	}
	d.findings = nil
	if text := d.reportClocks(map[string]*int64{"unsure_pairs": &n}).Text(); !strings.Contains(text, "for 0 grants that followed another user's, and") {
		t.Errorf("%q", text)
	}
	d.tally.judged.Effects = 1
	if text := d.reportClocks(map[string]*int64{"unordered_effects": &n}).Text(); !strings.HasSuffix(text, "own order of arrival; 4 effects are unordered") || strings.Contains(text, "pairs") {
		t.Errorf("%q", text)
	}
	for _, none := range []map[string]*int64{nil, {"unordered_effects": new(int64(0))}} {
		if text := d.reportClocks(none).Text(); !strings.HasSuffix(text, "own order of arrival") {
			t.Errorf("of %v: %q", none, text)
		}
	}
}

// TestAFaultAimedAtAGrant: such a fault bites only if the acquire was granted; a request alone is not enough. A
// release with a dropped invoke still ends the grant.
func TestAFaultAimedAtAGrant(t *testing.T) {
	u := history.MakeUser(0, 0)
	asked := history.Event{Time: 800, User: u, Op: 1, Kind: history.Acquire, Phase: history.Invoke}
	granted := history.Event{Time: 900, User: u, Op: 1, Grant: 1, Kind: history.Acquire, Phase: history.Ok}
	failed := history.Event{Time: 900, User: u, Op: 1, Kind: history.Acquire, Phase: history.Fail}
	renewed := history.Event{Time: 910, User: u, Op: 2, Grant: 1, Kind: history.Renew, Phase: history.Ok}
	released := history.Event{Time: 950, User: u, Op: 3, Grant: 1, Kind: history.Release, Phase: history.Ok}
	for _, c := range []struct {
		name   string
		events []history.Event
		want   history.ReceiptStatus
	}{
		{"granted", []history.Event{asked, granted}, history.Installed},
		{"granted and renewed", []history.Event{asked, granted, renewed}, history.Installed},
		{"asked for", []history.Event{asked}, history.NotInstalled},
		{"refused", []history.Event{asked, failed}, history.NotInstalled},
		{"released, and the invoke was dropped", []history.Event{asked, granted, released}, history.NotInstalled},
	} {
		r := newReceipts(Run{Faults: []history.Fault{{Grant: 1, User: &u, Bit: 1000, Receipt: history.Receipt{Status: history.Installed}}}})
		for i := range c.events {
			r.observe(&c.events[i])
		}
		if got := r.faults()[0].Receipt; got.Status != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got.Status, got.Evidence, c.want)
		}
	}
}

// TestAStopWithinTheErrors: if release and stop lie within the errors of their clocks, their order is unknown.
func TestAStopWithinTheErrors(t *testing.T) {
	u := history.MakeUser(0, 0)
	for over, want := range map[int64]history.ReceiptStatus{
		991: history.NotInstalled, 992: history.Indeterminate, 999: history.Indeterminate, 1000: history.Indeterminate, 1007: history.Indeterminate, 1008: history.Installed, 0: history.Installed,
	} {
		run := Run{
			Processes: []history.Header{{Process: "client-1", ErrorNS: 5}},
			Faults:    []history.Fault{{Grant: 1, User: &u, Bit: 1000, BitError: 3, Receipt: history.Receipt{Status: history.Installed}}},
		}
		r := newReceipts(run)
		r.observe(&history.Event{Time: 900, User: u, Op: 1, Kind: history.Acquire, Phase: history.Ok})
		if over > 0 {
			r.observe(&history.Event{Time: over, User: u, Grant: 1, Kind: history.Release, Phase: history.Invoke})
		}
		if got := r.faults()[0].Receipt; got.Status != want {
			t.Errorf("a release at %d: %s (%s), want %s", over, got.Status, got.Evidence, want)
		}
	}
	run := Run{Processes: []history.Header{{Process: "client-1", ErrorNS: 5}}, Faults: []history.Fault{{Grant: 1, User: &u, Bit: 1000, BitError: 3, Receipt: history.Receipt{Status: history.Installed}}}}
	for at, want := range map[int64]history.ReceiptStatus{1008: history.Installed, 1009: history.NotInstalled} {
		r := newReceipts(run)
		r.observe(&history.Event{Time: at, User: u, Op: 1, Kind: history.Acquire, Phase: history.Ok})
		if got := r.faults()[0].Receipt.Status; got != want {
			t.Errorf("a grant at %d: %s, want %s", at, got, want)
		}
	}
}
