package report

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/story"
)

// crowdedRun has everything that makes a picture hard: two users of one client, wide tokens, renewals, a write that
// was sent before the pause and arrives after it, a loss, many accesses, and a third holder.
func crowdedRun(t *testing.T) synthetic {
	w := newWorld(t, 3)
	w.env.Scenario, w.env.TTL = "crowded", 1500*ms
	token := uint64(4_294_967_298)
	a := w.acquire(history.MakeUser(2, 11), 1999.9, 2000.004, token, 1500)
	for i := range 6 {
		w.access(a, history.Read, 2001+float64(i), 2001.2+float64(i), int64(1000+i), history.Ok)
	}
	for _, t := range []float64{2500, 3000} {
		w.event(history.Event{Time: at(t), User: a.user, Grant: a.op, Kind: history.Renewed, Phase: history.Info, Valid: at(t + 1500)})
	}
	a.ref.Valid = at(4500)
	w.access(a, history.Write, 3400.001, 8000.7, 100_000_001, history.Ok)
	w.event(history.Event{Time: at(8003), User: a.user, Grant: a.op, Kind: history.Lost, Phase: history.Info})
	a.ref.End = at(8003)
	b := w.acquire(history.MakeUser(0, 12), 4520, 4520.02, token+1, 1500)
	w.access(b, history.Read, 4520.03, 4520.05, 1006, history.Ok)
	w.access(b, history.Write, 4520.06, 4520.08, 100_000_002, history.Ok)
	w.release(b, 4520.09, history.Ok, 0)
	c := w.acquire(history.MakeUser(0, 13), 4521, 4523.02, token+2, 1500)
	w.access(c, history.Read, 4524, 4525, 100_000_002, history.Ok)
	c.ref.End = at(7000)
	w.engine = []history.Event{{Time: at(7000), User: c.user, Grant: c.op, Kind: history.Dead, Phase: history.Info, Value: at(6999)}}
	dir := w.write(a, b, c)
	w.faults = []history.Fault{
		{
			ID: 1, Name: "pause", Targets: []string{"client-3"}, Target: "client-3", Start: at(3400), Bit: at(3400.4), End: at(8000),
			Receipt: history.Receipt{Status: history.Installed},
		},
		{
			ID: 2, Name: "pause", Targets: []string{"etcd-2"}, Target: "etcd-2", Start: at(6000), Bit: at(6001), End: at(6500),
			Receipt: history.Receipt{Status: history.Installed},
		},
		{
			ID: 3, Name: "restart", Targets: []string{"register"}, Target: "register", Start: at(6600), Bit: at(6601), End: at(6602),
			Receipt: history.Receipt{Status: history.Installed},
		},
		{ID: 4, Name: "kill", Targets: []string{"client-1"}, Target: "client-1", Start: at(6999), Bit: at(7000.2), Receipt: history.Receipt{Status: history.Installed}},
	}
	writeFaults(t, dir, w.faults)
	r := baseReport(w, dir)
	r.Claim = "https://example.com/a-very-long-word-that-no-page-may-be-widened-by-whatever-it-is-made-of-and-so-on-and-so-on-and-so-on"
	r.Faults = faultResults(w)
	r.Findings = []results.Finding{{Checker: "stale", Verdict: results.Violated, Witnesses: []results.Witness{{
		Kind: "stale_write", Lock: "lock-0", From: at(4520.03), To: at(8000.7), Holds: []results.HoldRef{a.ref, b.ref, c.ref},
		Text: "client-3/11 wrote 100000001 at 8000.700 ms under the grant of 2000.004 ms; it had left its client at 3400.001 ms, before the pause, and arrived after client-1/12 and client-1/13 had been inside, whose grants came at 4520.020 ms and at 4523.020 ms.",
	}}}}
	return synthetic{dir, r}
}

func TestCrowdedPicture(t *testing.T) {
	s := crowdedRun(t)
	pictureOf(t, s)
	got := toldOf(t, s)
	if got.Skipped == 0 {
		t.Error("every one of many accesses is drawn")
	}
	if len(got.Bands) != 4 { // the story needs two of the three holds
		t.Errorf("%d bands, want 4", len(got.Bands))
	}
	for _, m := range got.Marks {
		if m.Kind == story.MarkStale && m.Since != at(3400.001) {
			t.Errorf("the stale write left at %d", m.Since)
		}
	}
}
