package checkers

import (
	"fmt"
	"slices"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// over returns an event that ended a hold at a time.
func over(at int64) history.Event {
	return history.Event{Time: at, Kind: history.Release, Phase: history.Invoke}
}

// TestEntitledAtItsBorders: from the start of a span to before its end, each narrowed by the clock's error.
func TestEntitledAtItsBorders(t *testing.T) {
	for _, c := range []struct {
		err         int64
		from, until int64
		want        bool
	}{
		{0, 99, 99, false},
		{0, 100, 100, true},
		{0, 199, 199, true},
		{0, 200, 200, false},
		{0, 150, 199, true},
		{0, 150, 200, false},
		{0, 250, 250, false}, // between two stretches
		{0, 150, 350, false}, // across them
		{0, 300, 1 << 40, true},
		{5, 104, 104, false},
		{5, 105, 105, true},
		{5, 194, 194, true},
		{5, 195, 195, false},
		{5, 305, 1 << 40, true},
	} {
		h := &hold{clock: &history.Header{ErrorNS: c.err}, spans: []span{{100, 200}, {300, results.Forever}}}
		if got := h.entitled(c.from, c.until); got != c.want {
			t.Errorf("error %d: entitled from %d to %d is %t", c.err, c.from, c.until, got)
		}
	}
}

// TestBeforeAtItsBorders: in hand before the request was sent, or over before the other came into hand, entitled.
func TestBeforeAtItsBorders(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b hold
		want bool
	}{
		{"in hand when it was sent", hold{start: 10}, hold{issued: 10, start: 30, fresh: true}, false},
		{"in hand before it was sent", hold{start: 10}, hold{issued: 11, start: 30, fresh: true}, true},
		{"in hand before, by clocks that may be wrong", hold{start: 10, clock: errs(2)}, hold{issued: 15, start: 30, clock: errs(3)}, false},
		{"in hand before, whatever the clocks", hold{start: 10, clock: errs(2)}, hold{issued: 16, start: 30, clock: errs(3)}, true},
		{"over when the other came", hold{start: 10, over: over(30)}, hold{issued: 5, start: 30, fresh: true}, true},
		{"not over when the other came", hold{start: 10, over: over(31)}, hold{issued: 5, start: 30, fresh: true}, false},
		{"never over", hold{start: 10}, hold{issued: 5, start: 30, fresh: true}, false},
		{"over when the other came too late", hold{start: 10, over: over(20)}, hold{issued: 5, start: 30}, false},
		{"over, by clocks that may be wrong", hold{start: 10, clock: errs(2), over: over(30)}, hold{issued: 5, start: 34, clock: errs(3), fresh: true}, false},
		{"over, whatever the clocks", hold{start: 10, clock: errs(2), over: over(30)}, hold{issued: 5, start: 35, clock: errs(3), fresh: true}, true},
		{"over as it began, when the other came", hold{start: 30, over: over(30)}, hold{issued: 5, start: 30, fresh: true}, false},
		{"over as it began, before the other came", hold{start: 29, over: over(29)}, hold{issued: 5, start: 30, fresh: true}, true},
	} {
		if got := before(&c.a, &c.b); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
		if maybe := maybeBefore(&c.a, &c.b, results.Forever); c.a.clock == nil && maybe != c.want || c.a.clock != nil && !maybe {
			t.Errorf("%s: maybe before is %t", c.name, maybe)
		}
	}
	a, b := hold{start: 19, clock: errs(2)}, hold{issued: 15, start: 30, clock: errs(3)}
	if !maybeBefore(&a, &b, 50) {
		t.Error("within the errors it may have been in hand before")
	}
	if a.start = 20; maybeBefore(&a, &b, 50) {
		t.Error("beyond the errors it was not in hand before")
	}
	if !maybeBefore(&a, &b, 35) {
		t.Error("its end may be told of later than it was")
	}
	a, b = hold{start: 34, clock: errs(2), over: over(34)}, hold{issued: 5, start: 29, clock: errs(3)}
	if maybeBefore(&a, &b, 50) {
		t.Error("what began when the other did at the latest was not before it")
	}
}

// TestAHoldIsDrawnToItsEnd: one that never ended has none.
func TestAHoldIsDrawnToItsEnd(t *testing.T) {
	for end, want := range map[int64]int64{30: 30, results.Forever: 0} {
		if got := (&hold{start: 10, end: end}).Ref(); got.Start != 10 || got.End != want {
			t.Errorf("a hold to %d is drawn as %+v", end, got)
		}
	}
}

// errs returns a clock with the given error.
func errs(n int64) *history.Header { return &history.Header{ErrorNS: n} }

// TestValidityOfAGrant: what the grant says, and what each renewal changes.
func TestValidityOfAGrant(t *testing.T) {
	type news struct{ at, valid int64 }
	unknown := history.ValidUnknown
	for _, c := range []struct {
		name  string
		valid int64
		news  []news
		want  []span
		cut   int64 // of the last renewal
		fresh bool
	}{
		{"a grant", 200, nil, []span{{100, 200}}, 0, true},
		{"a grant for no time at all", 100, nil, nil, 0, false},
		{"a grant that came too late", 90, nil, nil, 0, false},
		{"a grant of which nothing is known", unknown, nil, nil, 0, false},
		{"a renewal", 200, []news{{150, 300}}, []span{{100, 300}}, results.Forever, true},
		{"a renewal at the very end", 200, []news{{200, 300}}, []span{{100, 300}}, results.Forever, true},
		{"a renewal after the end", 200, []news{{210, 300}}, []span{{100, 200}, {210, 300}}, results.Forever, true},
		{"a renewal after the end, which is over already", 200, []news{{210, 205}}, []span{{100, 200}}, results.Forever, true},
		{"a renewal after the end, just over", 200, []news{{210, 210}}, []span{{100, 200}}, results.Forever, true},
		{"a renewal of what was never valid", unknown, []news{{150, 300}}, []span{{150, 300}}, results.Forever, false},
		{"a shorter one", 200, []news{{150, 180}}, []span{{100, 180}}, 180, true},
		{"a shorter one, for the past", 200, []news{{150, 120}}, []span{{100, 120}}, 120, true},
		{"a shorter one, for all of it", 200, []news{{150, 100}}, nil, 100, true},
		{"one that nobody knows", 200, []news{{150, unknown}}, []span{{100, 150}}, 150, true},
		{"one that nobody knows, after the end", 200, []news{{250, unknown}}, []span{{100, 200}}, 250, true},
		{"a shorter one behind a gap takes back both", 200, []news{{210, 300}, {220, 150}}, []span{{100, 150}}, 150, true},
		{"the same again", 200, []news{{150, 200}}, []span{{100, 200}}, results.Forever, true},
	} {
		h := &hold{start: 100}
		h.grantValidity(c.valid)
		var cut int64
		for _, n := range c.news {
			cut = h.renewValidity(n.at, n.valid)
		}
		if !slices.Equal(h.spans, c.want) || cut != c.cut || h.fresh != c.fresh {
			t.Errorf("%s: %v, cut at %d, fresh %t; want %v, %d, %t", c.name, h.spans, cut, h.fresh, c.want, c.cut, c.fresh)
		}
	}
}

// alone is a checker that follows the holds of a run as the only one.
type alone struct {
	*tracker
	checker results.Checker
}

func followed(run results.Run, c results.Checker) alone {
	t := newTracker(run)
	t.Follow(c, func(why any) { panic(why) })
	return alone{t, c}
}

func (a alone) Finish() results.Finding {
	a.tracker.Finish()
	return a.checker.Finish()
}

// ends records the ends of holds.
type ends struct {
	order []*hold
	taken []int64
}

func (*ends) Observe(*history.Event)  {}
func (*ends) Finish() results.Finding { return results.Finding{} }
func (w *ends) takenBack(c curtailed) { w.taken = append(w.taken, c.cut) }
func (w *ends) ended(h *hold)         { w.order = append(w.order, h) }
func (w *ends) follow(*tracker) watch {
	return watch{began: func(h *hold) { h.pinned = true }, takenBack: w.takenBack, ended: w.ended, left: w.ended}
}

// play plays events of one client to a tracker. Each is its time, its kind, and its grant.
func play(run results.Run, es ...history.Event) *ends {
	w := &ends{}
	t := followed(run, w)
	for i := range es {
		if es[i].Phase == history.PhaseNone {
			es[i].Phase = history.Info
		}
		t.Observe(&es[i])
	}
	t.Finish()
	return w
}

func TestHowAHoldEnds(t *testing.T) {
	run := results.Run{Locks: []string{"lock-0", "lock-1"}}
	killed := results.Run{Locks: run.Locks, Dead: []string{"client-1"}}
	ok := func(op uint32, at int64, lock uint16) history.Event {
		return history.Event{Time: at, Kind: history.Acquire, Phase: history.Ok, Op: op, Grant: op, Lock: lock, Valid: 1000, Value: at - 1}
	}
	for _, c := range []struct {
		name     string
		run      results.Run
		es       []history.Event
		end, was []int64 // of each hold: its end, and when that was observed
	}{
		{"a release", run, []history.Event{ok(1, 10, 0), {Time: 20, Kind: history.Release, Phase: history.Invoke, Grant: 1}}, []int64{20}, []int64{20}},
		{"the ok of a release", run, []history.Event{ok(1, 10, 0), {Time: 20, Kind: history.Release, Phase: history.Ok, Grant: 1}}, []int64{results.Forever}, []int64{results.Forever}},
		{"a release of another grant", run, []history.Event{ok(1, 10, 0), {Time: 20, Kind: history.Release, Phase: history.Invoke, Grant: 2}}, []int64{results.Forever}, []int64{results.Forever}},
		{"a loss", run, []history.Event{ok(1, 10, 0), ok(2, 11, 1), {Time: 20, Kind: history.Lost, Grant: 1}}, []int64{20, results.Forever}, []int64{20, results.Forever}},
		{"a death", run, []history.Event{ok(1, 10, 0), {Time: 50, Kind: history.Dead, Grant: 1, Value: 20}}, []int64{20}, []int64{50}},
		{"a death that tells no more", run, []history.Event{ok(1, 10, 0), {Time: 50, Kind: history.Dead, Grant: 1}}, []int64{50}, []int64{50}},
		{"a death that was seen before the hold began", run, []history.Event{ok(1, 10, 0), {Time: 50, Kind: history.Dead, Grant: 1, Value: 5}}, []int64{10}, []int64{50}},
		{"a death of all", run, []history.Event{ok(1, 10, 0), ok(2, 30, 1), {Time: 50, Kind: history.Dead, Value: 40}}, []int64{40, 40}, []int64{50, 50}},
		{"nothing", run, []history.Event{ok(1, 10, 0)}, []int64{results.Forever}, []int64{results.Forever}},
		{"the last sign of life of who was killed", killed, []history.Event{ok(1, 10, 0), {Time: 30, Kind: history.Check, Phase: history.Invoke, Grant: 1}}, []int64{30}, []int64{results.Forever}},
		{"no sign of life of who was killed", killed, []history.Event{ok(1, 10, 0), {Time: 30, Kind: history.Stall, Value: 5}}, []int64{10}, []int64{results.Forever}},
	} {
		w := play(c.run, c.es...)
		var end, was []int64
		for _, h := range w.order {
			end, was = append(end, h.end), append(was, h.overAt())
		}
		if !slices.Equal(end, c.end) || !slices.Equal(was, c.was) {
			t.Errorf("%s: ended at %d, seen at %d; want %d, %d", c.name, end, was, c.end, c.was)
		}
	}
}

// TestEventsThatRenewAHold: the ok of a renewal, the client's own news, and the engine's news of its session.
func TestEventsThatRenewAHold(t *testing.T) {
	run := results.Run{Locks: []string{"lock-0"}}
	for _, c := range []struct {
		name  string
		e     history.Event
		want  span
		fresh bool
		taken []int64
	}{
		{"the ok of a renewal", history.Event{Kind: history.Renew, Phase: history.Ok, Valid: 300}, span{10, 300}, true, nil},
		{"the invoke of a renewal", history.Event{Kind: history.Renew, Phase: history.Invoke, Valid: 300}, span{10, 100}, true, nil},
		{"a renewal that failed", history.Event{Kind: history.Renew, Phase: history.Fail, Valid: 300}, span{10, 100}, true, nil},
		{"what the client learned", history.Event{Kind: history.Renewed, Valid: 300}, span{10, 300}, true, nil},
		{"a shorter one", history.Event{Kind: history.Renewed, Valid: 60}, span{10, 60}, true, []int64{60}},
		{"the end of its session", history.Event{Kind: history.Ended, Valid: 60}, span{10, 60}, true, []int64{60}},
		{"the end of its session as it began", history.Event{Kind: history.Ended, Valid: 10}, span{}, false, []int64{10}},
		{"the end of its session before", history.Event{Kind: history.Ended, Valid: 5}, span{}, false, []int64{5}},
	} {
		c.e.Time, c.e.Grant = 50, 1
		w := play(run, history.Event{Time: 10, Kind: history.Acquire, Phase: history.Ok, Op: 1, Grant: 1, Valid: 100, Value: 9}, c.e)
		h := w.order[0]
		var got span
		if len(h.spans) > 0 {
			got = h.spans[0]
		}
		if got != c.want || h.fresh != c.fresh || !slices.Equal(w.taken, c.taken) {
			t.Errorf("%s: %v, fresh %t, taken back from %v; want %v, %t, %v", c.name, h.spans, h.fresh, w.taken, c.want, c.fresh, c.taken)
		}
	}
}

// TestTheErrorsOfClocks: each hold has its client's error, and the worst is the maximum so far.
func TestTheErrorsOfClocks(t *testing.T) {
	tr := newTracker(results.Run{Processes: []history.Header{{Process: "client-2", ErrorNS: 9}, {Process: "engine"}, {Process: "client-1", ErrorNS: 3}}})
	if a, b, c := tr.clocks.Of(history.MakeUser(0, 4)), tr.clocks.Of(history.MakeUser(1, 0)), tr.clocks.Of(history.MakeUser(2, 0)); a.ErrorNS != 3 || b.ErrorNS != 9 || c != nil {
		t.Errorf("clocks %+v, %+v, %+v", a, b, c)
	}
	most := int64(0)
	for client, want := range []int64{3, 9, 0, 3} {
		most = max(most, want)
		u := history.MakeUser(client%3, 0)
		tr.observe(&history.Event{Time: 10, Kind: history.Acquire, Phase: history.Ok, Op: 1, Grant: 1, User: u, Valid: 100, Value: 5})
		h := tr.open(u, 1)
		if err := h.latest(9) - 9; err != want || err != 9-h.earliest(9) || h.issued != 5 || tr.worst != most {
			t.Errorf("a hold of %v: error %d, asked for at %d; the worst is %d", u, err, h.issued, tr.worst)
		}
		tr.observe(&history.Event{Time: 20, Kind: history.Release, Phase: history.Invoke, Grant: 1, User: u}) // reused
	}
}

// TestByHowMuchAHoldIsLate: the lateness counts from the end of its validity.
func TestByHowMuchAHoldIsLate(t *testing.T) {
	for _, c := range []struct {
		valid, until, start, end, late int64
	}{
		{100, 99, 0, 0, 0},
		{100, 100, 0, 0, 0},
		{100, 101, 5, 101, 1},
		{100, results.Forever, 0, 0, 0},
		{history.ValidUnknown, 101, 0, 0, 0},
	} {
		h := &hold{start: 10, issued: 5}
		h.grantValidity(c.valid)
		if o := overstayed(h, c.until); o.Start != c.start || o.End != c.end || o.Late != c.late {
			t.Errorf("valid until %d, there until %d: %+v", c.valid, c.until, o)
		}
	}
	h := &hold{start: 10}
	h.grantValidity(100)
	if o := overstayed(h, 101); o.Start != 10 {
		t.Errorf("who did not tell when it asked stayed from %d on, and had the lock from 10 on", o.Start)
	}
}

func TestPairsThatFindNoRoomAreDecidedAtOnce(t *testing.T) {
	for _, pending := range []int{0, maxPending} {
		run := results.Run{Locks: []string{"lock-0"}}
		x := newExclusion(run).(*exclusion)
		x.pending = pending
		holds := followed(run, x)
		for i, e := range []history.Event{
			{Time: 10, Kind: history.Acquire, Phase: history.Ok, Op: 1, Valid: 1000},
			{Time: 20, Kind: history.Acquire, Phase: history.Ok, Op: 1, Valid: 1000, User: history.MakeUser(1, 0)},
			{Time: 30, Kind: history.Release, Phase: history.Invoke, Grant: 1},
			{Time: 40, Kind: history.Release, Phase: history.Invoke, Grant: 1, User: history.MakeUser(1, 0)},
		} {
			e.Seq = uint32(i + 1)
			holds.Observe(&e)
			if x.pending > maxPending {
				t.Errorf("%d pairs are pending", x.pending)
			}
		}
		if f := holds.Finish(); *f.Counts["double_grants"] != 1 {
			t.Errorf("with %d pairs pending, %d double grants", pending, *f.Counts["double_grants"])
		}
	}
}

// TestAHoldHasNoMorePairs than the bound, however many holds end while it is open.
func TestAHoldHasNoMorePairs(t *testing.T) {
	run := results.Run{Locks: []string{"lock-0"}}
	x := newExclusion(run).(*exclusion)
	holds := followed(run, x)
	holds.Observe(&history.Event{Time: 1, Seq: 1, Kind: history.Acquire, Phase: history.Ok, Op: 1, Valid: 1e9})
	for i := range int64(maxPairs + 10) {
		e := history.Event{Time: 2 + 2*i, Seq: uint32(1 + 2*i), Kind: history.Acquire, Phase: history.Ok, Op: uint32(1 + i), Valid: 1e9, User: history.MakeUser(1, 0)}
		holds.Observe(&e)
		e.Time, e.Seq, e.Kind, e.Phase, e.Grant = e.Time+1, e.Seq+1, history.Release, history.Invoke, e.Op
		holds.Observe(&e)
	}
	if n := len(x.pairs[x.t.locks[0][0]]); n != maxPairs {
		t.Errorf("%d pairs of one hold are undecided, want %d", n, maxPairs)
	}
}

// TestALadderKnowsWhatItForgot: below its lowest rung there may have been others.
func TestALadderKnowsWhatItForgot(t *testing.T) {
	l := &ladder{}
	if h, known := l.below(5); h != nil || !known {
		t.Errorf("an empty ladder: %v, %t", h, known)
	}
	for i := range maxRungs + 1 {
		if l.dropped {
			t.Errorf("%d find room", i)
		}
		l.add(int64(10+i), &hold{token: uint64(1 + i)})
	}
	if h, known := l.below(11); h != nil || known {
		t.Errorf("what was forgotten: %v, %t", h, known)
	}
	if h, known := l.below(1 << 40); h == nil || h.token != maxRungs+1 || !known {
		t.Errorf("the highest: %+v, %t", h, known)
	}
}

// TestALadderOfGrantsOutOfOrder: with inexact clocks and late ends, earlier grants are added later. Of those with one
// token the earliest counts, and of those with one time and token the first.
func TestALadderOfGrantsOutOfOrder(t *testing.T) {
	type grant struct{ key, token int }
	for _, c := range []struct {
		add  []grant
		want map[int64]int // below this it is the hold of this add; -1 for none
	}{
		{[]grant{{20, 9}, {10, 5}}, map[int64]int{10: -1, 11: 1, 20: 1, 21: 0}},
		{[]grant{{20, 5}, {10, 5}}, map[int64]int{10: -1, 11: 1, 30: 1}},
		{[]grant{{20, 5}, {10, 9}}, map[int64]int{10: -1, 11: 1, 30: 1}},
		{[]grant{{10, 5}, {10, 5}}, map[int64]int{10: -1, 11: 0}},
	} {
		l := &ladder{}
		var hs []*hold
		for _, g := range c.add {
			hs = append(hs, &hold{token: uint64(g.token)})
			l.add(int64(g.key), hs[len(hs)-1])
		}
		for bound, want := range c.want {
			if h, _ := l.below(bound); slices.Index(hs, h) != want {
				t.Errorf("%v, below %d: number %d, want %d", c.add, bound, slices.Index(hs, h), want)
			}
		}
	}
}

// TestAHoldIsRememberedOnce, however often it reads and writes.
func TestAHoldIsRememberedOnce(t *testing.T) {
	l, h := &touched{}, &accessor{hold: &hold{issued: 5, start: 10, fresh: true}}
	for range 3 * maxTouches {
		l.add(effect{hold: h})
	}
	others := l.modes[0].beside(h, 0, func(*effect) { t.Error("it stands beside itself") })
	if others || len(l.modes[0].latest) != 1 {
		t.Errorf("%d are remembered; others are forgotten: %t", len(l.modes[0].latest), others)
	}
}

// TestEvictedHoldsMayOverlapOlderRequests a hold whose request is older.
func TestEvictedHoldsMayOverlapOlderRequests(t *testing.T) {
	l := &touched{}
	for i := range int64(2 * maxTouches) {
		l.add(effect{hold: &accessor{hold: &hold{issued: 100 + i, start: 100 + i, fresh: true}}})
	}
	m := &l.modes[0]
	for issued, want := range map[int64]bool{50: true, m.droppedStart: true, m.droppedStart + 1: false} {
		if others := m.beside(&accessor{hold: &hold{issued: issued, start: 1 << 30}}, 0, func(*effect) {}); others != want {
			t.Errorf("asked for at %d, and the last forgotten was granted at %d: %t", issued, m.droppedStart, others)
		}
	}
}

// TestEvictedEndedHoldsOverlapNothing: forgotten ended holds do not overlap entitled holds that began
// after their end; they may overlap earlier ones.
func TestEvictedEndedHoldsOverlapNothing(t *testing.T) {
	l := &touched{}
	for i := range int64(2 * maxTouches) {
		l.add(effect{hold: &accessor{hold: &hold{issued: 100 + i, start: 100 + i, over: over(5000), fresh: true}}})
	}
	for start, want := range map[int64]bool{4999: true, 5000: false, 5001: false} {
		if others := l.modes[0].beside(&accessor{hold: &hold{issued: 50, start: start, fresh: true}}, 0, func(*effect) {}); others != want {
			t.Errorf("granted at %d, and the forgotten were over at 5000: %t", start, others)
		}
	}
}

// TestTheOrderOfEffects is certain in one process, and with exact clocks. For replicas with inexact clocks it is
// certain beyond the errors.
func TestTheOrderOfEffects(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas []string
		err      int64
		a, b     int64
		want     bool
	}{
		{"one process, whose clock errs", nil, 5, 10, 11, true},
		{"replicas whose clocks are right, at one moment", []string{"epoch-1"}, 0, 10, 10, true},
		{"replicas, as far apart as both may err", []string{"epoch-1"}, 5, 10, 20, false},
		{"replicas, farther apart", []string{"epoch-1"}, 5, 10, 21, true},
	} {
		run := results.Run{Replicas: c.replicas, Processes: []history.Header{{Process: "epoch-1", ErrorNS: c.err}}}
		var found []effect
		effects := newEffects(run, func(x *effect) { found = append(found, *x) })
		for _, at := range []int64{c.a, c.b} {
			effects.observe(&history.Event{Kind: history.EffectRead, Phase: history.Ok, Time: at})
		}
		effects.finish()
		if got := newStaleWrites(run).(*staleWrites).inOrder(&found[0], &found[1]); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestStaleWriteWarnings: each warning appears exactly when its cause exists.
func TestStaleWriteWarnings(t *testing.T) {
	const queue = "run resource=register\n0 A acquire invoke\n1 B acquire invoke\n10 A acquire ok valid=100 issued=1\n130 B acquire ok valid=1030 issued=2\n140 B effect-read ok\n"
	for text, want := range map[string]string{
		queue:                             "[]",
		queue + "150 A effect-write ok\n": "[1 write could be ordered neither by time nor by a token of the service]",
		queue + "150 B effect-read fail fenced\n": "[the resource refused 1 access of rightful holders]",
	} {
		if got := fmt.Sprint(finding(t, "stale_writes", text).Warnings); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestOnlyEntitledGrantsFollowEndedHolds: a grant that came too late does not replace one that did not.
func TestOnlyEntitledGrantsFollowEndedHolds(t *testing.T) {
	l := &touched{}
	entitled := &accessor{hold: &hold{user: history.MakeUser(1, 0), issued: 5, start: 100, fresh: true}}
	l.add(effect{hold: entitled})
	l.add(effect{hold: &accessor{hold: &hold{user: history.MakeUser(2, 0), issued: 6, start: 200}}})
	if got := l.modes[0].after(&accessor{hold: &hold{issued: 2, start: 10, over: over(50)}}); got == nil || got.hold != entitled {
		t.Errorf("after it came %+v", got)
	}
}

// TestTheBoundOfALock is the declared one, or the ttl if its grants never expire.
func TestTheBoundOfALock(t *testing.T) {
	for _, c := range []struct {
		run  results.Run
		want int64
	}{
		{results.Run{TTL: 10, Expires: true, Recovery: 3}, 3},
		{results.Run{TTL: 10, Expires: true}, 10},
		{results.Run{TTL: 10, Recovery: 3}, 10},
	} {
		if got := c.run.RecoveryBound(); got != c.want {
			t.Errorf("%+v: %d", c.run, got)
		}
	}
}
