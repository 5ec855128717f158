package clock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// clockNode is a node whose clock is a number, and its own service. whole makes it report whole seconds, deaf makes it
// ignore every shift.
type clockNode struct {
	whole, deaf, mute, stuck bool
	mono                     bool // its monotonic clock moves too
	dumb                     bool // it reports its uptime once; after that one of its threads has to be asked
	shifts                   map[string]skewing
	changes                  int64
	slow                     time.Duration // until it shows a shift
	late                     time.Duration // delay of its answers about shifts
	meanwhile                func()        // when it is asked
}

type skewing struct {
	Shift
	from int64
}

func (n *clockNode) Name() string             { return "a" }
func (n *clockNode) Facts() map[string]string { return nil }

func (n *clockNode) said() Shifted {
	out := Shifted{Asked: clock.Now(), How: "by a number", Changes: n.changes}
	for _, s := range n.shifts {
		out.Ahead += s.Jump + time.Duration(s.Gain*float64(out.Asked-s.from))
		out.Gain += s.Gain
	}
	time.Sleep(n.late)
	out.Time = clock.Now()
	return out
}

// shown returns how far it is ahead as it answers.
func (n *clockNode) shown() time.Duration {
	var out time.Duration
	for _, s := range n.shifts {
		if since := clock.Now() - s.from; since >= int64(n.slow) {
			out += s.Jump + time.Duration(s.Gain*float64(since))
		}
	}
	return out
}

func (n *clockNode) ShiftClock(_ context.Context, key string, s Shift) (Shifted, error) {
	if n.shifts == nil {
		n.shifts = map[string]skewing{}
	}
	n.shifts[key] = skewing{s, clock.Now()}
	n.changes++
	return n.said(), nil
}

func (n *clockNode) ClockShifts(context.Context) (Shifted, error) { return n.said(), nil }

func (n *clockNode) UnshiftClock(_ context.Context, key string) (Shifted, error) {
	n.changes++
	if !n.stuck {
		delete(n.shifts, key)
		return n.said(), nil
	}
	said := n.said()
	said.Ahead -= n.shifts[key].Jump
	return said, nil
}

func (n *clockNode) Ask(_ context.Context, _, fact string) (string, error) {
	switch {
	case fact == chaos.FactMonotonic && n.dumb && n.changes == 0:
		return fmt.Sprint(clock.Now() - int64(2*time.Hour)), nil
	case fact == chaos.FactMonotonic && n.dumb:
		return fmt.Sprint(clock.Now()) + " as a thread reads it", nil
	case fact == chaos.FactMonotonic && n.mono:
		return fmt.Sprint(clock.Now() + int64(n.shown())), nil
	case fact == chaos.FactMonotonic:
		return fmt.Sprint(clock.Now()), nil
	case n.mute:
		return "", errors.New("it is down")
	}
	at := clock.Wall()
	if n.meanwhile != nil {
		n.meanwhile()
	}
	if !n.deaf {
		at = at.Add(n.shown())
	}
	if n.whole {
		return at.UTC().Format(time.RFC3339), nil
	}
	return at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"), nil
}

func newFault(t *testing.T, name, params string) chaos.Fault {
	t.Helper()
	return faulttest.New(t, Kinds(), name, params)
}

func TestClockFaults(t *testing.T) {
	for _, c := range []struct {
		name, fault, params string
		node                clockNode
		want                history.ReceiptStatus
	}{
		{"forward", "clock-jump", "by: 60000ms", clockNode{}, history.Installed},
		{"back", "clock-jump", "by: -3600000ms", clockNode{}, history.Installed},
		{"whole seconds", "clock-jump", "by: 900ms", clockNode{whole: true}, history.Installed}, // a stall hides part of that, but not all
		{"fast", "clock-drift", "rate: 3", clockNode{}, history.Installed},
		{"slow", "clock-drift", "rate: 0.1", clockNode{}, history.Installed},
		{"a jump that is ignored", "clock-jump", "by: 60000ms", clockNode{deaf: true}, history.NotInstalled},
		{"a drift that is ignored", "clock-drift", "rate: 3", clockNode{deaf: true}, history.NotInstalled},
		{"a jump of both clocks", "clock-jump", "by: 60000ms", clockNode{mono: true}, history.NotInstalled},
		{"a clock that is asked in two ways", "clock-jump", "by: 60000ms", clockNode{dumb: true}, history.Installed},
		{"nobody answers", "clock-jump", "by: 60000ms", clockNode{mute: true}, history.Indeterminate},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := &c.node
			heal, r, err := newFault(t, c.fault, c.params).Inject(t.Context(), chaos.Scope{On: []chaos.Node{n}, Service: n})
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, c.name, r, c.want)
			r, err = heal(t.Context())
			if err != nil || len(n.shifts) != 0 {
				t.Errorf("heal: %v; what stands: %v", err, n.shifts)
			}
			if !c.node.mute {
				faulttest.WantStatus(t, "heal", r, history.Installed)
			}
		})
	}
}

func TestClockThatLibfaketimeMovesIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		params string
		slow   time.Duration // far from the time limits faketimeSeen and vdsoSeen
		want   history.ReceiptStatus
	}{
		{"{by: 60000ms, how: faketime}", time.Second, history.Installed},
		{"by: 60000ms", 4 * time.Second, history.NotInstalled},
	} {
		n := &clockNode{slow: c.slow}
		f := newFault(t, "clock-jump", c.params)
		_, r, err := f.Inject(t.Context(), chaos.Scope{On: []chaos.Node{n}, Service: n})
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, c.params, r, c.want)
		if got := f.(chaos.Prepared).Preparations(); (len(got) == 1 && got[0] == Preload) != (c.want == history.Installed) {
			t.Errorf("%s needs %v", c.params, got)
		}
	}
}

// TestClockThatIsLookedAtTooEarly injects a jump before the process has seen the one before.
func TestClockThatIsLookedAtTooEarly(t *testing.T) {
	t.Parallel()
	n := &clockNode{slow: vdsoSeen / 5}
	if _, err := n.ShiftClock(t.Context(), "x", Shift{Jump: time.Hour}); err != nil {
		t.Fatal(err)
	}
	_, r, err := newFault(t, "clock-jump", "by: -10000ms").Inject(t.Context(), chaos.Scope{On: []chaos.Node{n}, Service: n})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "jump", r, history.Installed)
	if !strings.Contains(r.Evidence, "previously 1h0m") {
		t.Error(r.Evidence)
	}
}

// TestJumpWhileTheClockDrifts delays the answers about shifts, as on a busy machine.
func TestJumpWhileTheClockDrifts(t *testing.T) {
	t.Parallel()
	n := &clockNode{late: 300 * time.Millisecond}
	if _, err := n.ShiftClock(t.Context(), "x", Shift{Gain: 0.5}); err != nil {
		t.Fatal(err)
	}
	_, r, err := newFault(t, "clock-jump", "by: -10000ms").Inject(t.Context(), chaos.Scope{On: []chaos.Node{n}, Service: n})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "a jump of a clock that drifts", r, history.Installed)
}

// TestDriftWhileAnotherFaultJumps moves the clock by another fault between the two readings of a drift.
func TestDriftWhileAnotherFaultJumps(t *testing.T) {
	t.Parallel()
	n := &clockNode{}
	asked := 0
	n.meanwhile = func() {
		if asked++; asked == 3 || asked == 5 {
			_, _ = n.ShiftClock(t.Context(), fmt.Sprint(asked), Shift{Jump: time.Hour})
		}
	}
	heal := faulttest.Injected(t, "drift", newFault(t, "clock-drift", "rate: 3"), chaos.Scope{On: []chaos.Node{n}, Service: n})
	n.meanwhile = func() {
		if asked++; asked%2 == 0 && asked < 20 {
			_, _ = n.UnshiftClock(t.Context(), "3")
		}
	}
	faulttest.Healed(t, "heal", heal)
}

func TestClockThatIsNotPutBack(t *testing.T) {
	t.Parallel()
	n := &clockNode{stuck: true}
	heal := faulttest.Injected(t, "jump", newFault(t, "clock-jump", "by: 60000ms"), chaos.Scope{On: []chaos.Node{n}, Service: n})
	r, err := heal(t.Context())
	if err == nil || !strings.Contains(err.Error(), "still off") {
		t.Errorf("heal: %v", err)
	}
	faulttest.WantStatus(t, "heal", r, history.NotInstalled)
}

func TestClockFaultsAddUp(t *testing.T) {
	n := &clockNode{}
	scope := chaos.Scope{On: []chaos.Node{n}, Service: n}
	first := faulttest.Injected(t, "first", newFault(t, "clock-jump", "by: 60000ms"), scope)
	second := faulttest.Injected(t, "second", newFault(t, "clock-jump", "by: -10000ms"), scope)
	for _, heal := range []chaos.Heal{first, second} {
		faulttest.Healed(t, "heal", heal)
	}
}

func TestClockOfAStoppedHolderIsSeenOnceItGoesOn(t *testing.T) {
	n := &clockNode{mute: true}
	scope := chaos.Scope{On: []chaos.Node{n}, Service: n, Run: &faulttest.Run{GoOn: func() error { n.mute = false; return nil }}}
	faulttest.Injected(t, "jump", newFault(t, "clock-jump", "by: 60000ms"), scope)
}

func TestClockFaultsRefuse(t *testing.T) {
	for name, params := range map[string][]string{
		"clock-jump": {"", "by: 0ms", "{by: 60s, how: magic}"}, "clock-drift": {"", "rate: 1", "rate: 0", "rate: -1", "rate: 1.001", "rate: 101"},
	} {
		k := faulttest.Kind(t, Kinds(), name)
		for _, p := range params {
			if _, err := k.New(faulttest.Decoding(p)); err == nil {
				t.Errorf("%s %s was accepted", name, p)
			}
		}
	}
}
