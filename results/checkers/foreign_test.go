package checkers

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// victimised returns a hold from 10 to 100, entitled to 60; the releasing user's clock may be wrong by 5.
func victimised() (*foreignReleases, *hold) {
	run := results.Run{Locks: []string{"lock-0"}}
	c := newForeignReleases(run).(*foreignReleases)
	followed(run, c)
	c.t.clocks = results.Clocks{{ErrorNS: 5}}
	return c, &hold{user: history.MakeUser(1, 0), start: 10, end: 100, spans: []span{{10, 60}}}
}

func releasedAt(invoke, ok int64) *suspect {
	return &suspect{openRelease: openRelease{invoke: history.Event{Time: invoke}}, ok: history.Event{Time: ok}}
}

// TestAReleaseInsideAHold lies wholly inside it, by inexact clocks, and inside its entitled time.
func TestAReleaseInsideAHold(t *testing.T) {
	for _, c := range []struct {
		name       string
		invoke, ok int64
		change     func(*hold)
		want       bool
	}{
		{"in the middle", 30, 40, nil, true},
		{"just after it began", 15, 40, nil, false},
		{"certainly after it began", 16, 40, nil, true},
		{"just after it began, by its own clock", 18, 40, func(h *hold) { h.clock = &history.Header{ErrorNS: 3} }, false},
		{"to the end of its validity", 30, 55, nil, false},
		{"to just before the end of its validity", 30, 54, nil, true},
		{"to its end", 30, 94, func(h *hold) { h.spans[0].until = 900 }, true},
		{"beyond its end", 30, 95, func(h *hold) { h.spans[0].until = 900 }, false},
		{"to its end, by its own clock", 30, 92, func(h *hold) { h.spans[0].until, h.clock = 900, &history.Header{ErrorNS: 3} }, false},
		{"where nothing is known of its validity", 30, 40, func(h *hold) { h.spans = nil }, false},
		{"where it never ends", 30, 40, func(h *hold) { h.end = results.Forever }, true},
	} {
		f, h := victimised()
		if c.change != nil {
			c.change(h)
		}
		if got := f.inside(releasedAt(c.invoke, c.ok), h); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// TestVictimMissesTheLock: a grant to a third user after the release began, or its own refusal after the release was
// answered; both while it was entitled.
func TestVictimMissesTheLock(t *testing.T) {
	third := func(x hold) func(*victim) { return func(v *victim) { v.thirds = append(v.thirds, &x) } }
	refused := func(at int64) func(*victim) {
		return func(v *victim) { v.refused = append(v.refused, history.Event{Time: at}) }
	}
	for _, c := range []struct {
		name string
		what func(*victim)
		want bool
	}{
		{"nothing", func(*victim) {}, false},
		{"a third after it", third(hold{start: 50, fresh: true}), true},
		{"a third while it was under way", third(hold{start: 36, fresh: true}), true},
		{"a third as it began, by clocks that may be wrong", third(hold{start: 35, fresh: true}), false},
		{"a third as it began, by its own clock", third(hold{start: 37, clock: &history.Header{ErrorNS: 2}, fresh: true}), false},
		{"a third at the end of the validity", third(hold{start: 60, fresh: true}), false},
		{"a third at the end of the validity, by its own clock", third(hold{start: 58, clock: &history.Header{ErrorNS: 2}, fresh: true}), false},
		{"a third whose answer came too late", third(hold{start: 50, issued: 20}), false},
		{"a third that asked as it began, and whose answer came too late", third(hold{start: 50, issued: 35}), false},
		{"a third that asked later, and whose answer came too late", third(hold{start: 50, issued: 36}), true},
		{"a refusal after it", refused(50), true},
		{"a refusal as it was answered", refused(40), false},
		{"a refusal as it was answered, by clocks that may be wrong", refused(45), false},
		{"a refusal at the end of the validity", refused(60), false},
	} {
		f, h := victimised()
		v := &victim{hold: h}
		c.what(v)
		if _, _, got := f.missed(releasedAt(30, 40), v); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	f, h := victimised()
	h.end, h.spans[0].until = 55, 900 // it ended before its validity did
	v := &victim{hold: h, thirds: []*hold{{start: 56, fresh: true}}}
	if _, _, got := f.missed(releasedAt(30, 40), v); got {
		t.Error("a third after its end was missed")
	}
}

// TestThirdUser: another user than the victim, whose hold excludes the victim's.
func TestThirdUser(t *testing.T) {
	_, h := victimised()
	shared := &hold{user: h.user, mode: 1}
	for name, c := range map[string]struct {
		victim, x *hold
		want      int
	}{
		"the hold itself":           {h, h, 0},
		"another hold of the user":  {h, &hold{user: h.user}, 0},
		"somebody else":             {h, &hold{user: history.MakeUser(2, 0)}, 1},
		"somebody else who shares":  {h, &hold{user: history.MakeUser(2, 0), mode: 1}, 1},
		"two who share":             {shared, &hold{user: history.MakeUser(2, 0), mode: 1}, 0},
		"one who does not share it": {shared, &hold{user: history.MakeUser(2, 0)}, 1},
	} {
		v := &victim{hold: c.victim}
		v.third(c.x)
		v.third(c.x) // once
		if len(v.thirds) != c.want {
			t.Errorf("%s: %d", name, len(v.thirds))
		}
	}
}

// TestRefusalMeansNoGrant: the service certainly does not have the grant.
func TestRefusalMeansNoGrant(t *testing.T) {
	for _, c := range []struct {
		phase history.Phase
		code  uint8
		want  int
	}{
		{history.Fail, history.CodeNotHeld, 1},
		{history.Fail, history.CodeLost, 1},
		{history.Fail, history.CodeTimeout, 0},
		{history.Fail, history.CodeUnavailable, 0},
		{history.Info, history.CodeNotHeld, 0},
		{history.Ok, history.CodeNone, 0},
	} {
		v := &victim{}
		v.refuse(&history.Event{Phase: c.phase, Code: c.code})
		if len(v.refused) != c.want {
			t.Errorf("%v %s: %d", c.phase, history.CodeName(c.code), len(v.refused))
		}
	}
}
