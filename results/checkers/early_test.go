package checkers

import (
	"fmt"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Events stamped before the grant that they belong to, by inexact clocks.

// TestEventsStampedBeforeTheirGrant is kept for as long as the clock of its client may err, and of many grants the latest.
func TestEventsStampedBeforeTheirGrant(t *testing.T) {
	const err = 5
	a, b := history.MakeUser(0, 0), history.MakeUser(1, 0)
	run := results.Run{Processes: []history.Header{{Process: "client-1", ErrorNS: err}, {Process: "client-2", ErrorNS: err}}}
	ended := func(u history.User, grant uint32, at int64) *history.Event {
		return &history.Event{Kind: history.Ended, Phase: history.Info, User: u, Grant: grant, Time: at, Valid: at}
	}
	for _, c := range []struct {
		name  string
		other int64 // when the end of another grant is reported before that; 0: never
		more  int   // ends of further grants
		kept  bool
	}{
		{"alone", 0, 0, true},
		{"for twice the error", 100 + 2*err, 0, true},
		{"for no longer", 100 + 2*err + 1, 0, false},
		{"beside as many as there is room for", 0, maxEarly - 1, true},
		{"beside one more", 0, maxEarly, false},
	} {
		tr := newTracker(run)
		tr.observe(ended(a, 1, 100))
		if c.other != 0 {
			tr.observe(ended(b, 1, c.other))
		}
		for i := range c.more {
			tr.observe(ended(b, uint32(1+i), 100))
		}
		tr.observe(&history.Event{Kind: history.Acquire, Phase: history.Ok, User: a, Op: 1, Time: 115, Valid: 1000})
		if h := tr.open(a, 1); (h.ended == 100) != c.kept || h.entitled(200, 200) == c.kept {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
}

// TestEffectsWaitForTheirHolds for as long as clocks err, the resource's included, in bounded memory. Example: the
// resource serves an access at 10 ms by a clock with an error of 2 ms, so possibly at 12 ms. An acquire ok of 15 ms
// may have been at 12 ms as well.
func TestEffectsWaitForTheirHolds(t *testing.T) {
	ms := int64(1e6)
	for _, x := range []struct {
		run     string
		ok      int
		unknown int64
	}{
		{"error.A=3 error.register=2", 15, 0},
		{"error.A=3 error.register=2", 16, 1},
		{"error.register=5", 15, 0},
		{"error.register=5", 16, 1},
	} {
		s, err := parseScript(fmt.Sprintf("run resource=register %s\n8 A acquire invoke\n10 A effect-write ok\n%d A acquire ok valid=1000 issued=8\n20 A release invoke\n", x.run, x.ok))
		if err != nil {
			t.Fatal(err)
		}
		c := newStaleWrites(s.run).(*staleWrites)
		holds := followed(s.run, c)
		for i := range s.events {
			holds.Observe(&s.events[i])
		}
		if waiting := len(c.t.effects.queue); waiting != 0 || c.unknown != x.unknown {
			t.Errorf("%s, granted at %d ms: %d effects wait, and %d have no hold", x.run, x.ok, waiting, c.unknown)
		}
	}
	unknown := 0
	s := newEffects(results.Run{Processes: []history.Header{{Process: "client-1", ErrorNS: 3600e9}}}, func(x *effect) {
		if x.hold == nil {
			unknown++
		}
	})
	for i := range int64(maxWaiting + 10) {
		s.observe(&history.Event{Time: i * ms, Kind: history.EffectWrite, Phase: history.Ok, Grant: 1})
	}
	if len(s.queue) != maxWaiting+1 || unknown != 9 { // the latest one arrived after the last look
		t.Errorf("%d effects wait, and %d have no hold", len(s.queue), unknown)
	}
}
