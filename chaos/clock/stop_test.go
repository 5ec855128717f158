package clock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// suspendNode is a node that can be stopped, and whose monotonic clock is a number.
type suspendNode struct {
	stopped, ended bool
	restless       bool // it does not stop
	deaf           bool // its clock does not follow
	moved          bool // its events are stamped by the clock that stood still
	server         bool // it stamps no events
	mute           bool
	still          time.Duration
}

func (n *suspendNode) Name() string             { return "client-1" }
func (n *suspendNode) Facts() map[string]string { return nil }

func (n *suspendNode) Inspect(context.Context) (chaos.ProcessState, error) {
	s := chaos.ProcessState{PID: 7, Threads: map[string]int{"S": 2}, Time: clock.Now()}
	switch {
	case n.ended:
		s.PID, s.Threads = 0, nil
	case n.stopped:
		s.Threads = map[string]int{"T": 2}
	}
	return s, nil
}

func (n *suspendNode) Pause(ctx context.Context) (chaos.ProcessState, error) {
	n.stopped = !n.restless
	return n.Inspect(ctx)
}

func (n *suspendNode) Resume(ctx context.Context) (chaos.ProcessState, error) {
	n.stopped = false
	return n.Inspect(ctx)
}

func (n *suspendNode) ShiftClock(ctx context.Context, _ string, s Shift) (Shifted, error) {
	n.still += s.Still
	return n.ClockShifts(ctx)
}

func (n *suspendNode) ClockShifts(context.Context) (Shifted, error) {
	return Shifted{Still: n.still, Time: clock.Now(), How: "by a number"}, nil
}

func (n *suspendNode) UnshiftClock(ctx context.Context, _ string) (Shifted, error) {
	return n.ClockShifts(ctx)
}

func (n *suspendNode) Ask(_ context.Context, _, fact string) (string, error) {
	behind := n.still
	if n.deaf {
		behind = 0
	}
	switch {
	case n.stopped || n.mute || fact == chaos.FactStamps && n.server:
		return "", errors.New("no answer")
	case fact == chaos.FactStamps && !n.moved:
		behind = 0
	}
	return fmt.Sprint(clock.Now() - int64(behind)), nil
}

func TestClockStop(t *testing.T) {
	t.Parallel()
	const long = 600 * time.Millisecond
	for name, c := range map[string]struct {
		node           suspendNode
		stands         time.Duration
		made, healed   history.ReceiptStatus
		wrong, already bool // the heal is an error; the target was paused to aim
	}{
		"client":                      {suspendNode{}, long, history.Installed, history.Installed, false, false},
		"server":                      {suspendNode{server: true}, long, history.Installed, history.Installed, false, false},
		"holder":                      {suspendNode{stopped: true}, long, history.Installed, history.Installed, false, true},
		"second stop of a holder":     {suspendNode{stopped: true, still: time.Hour}, long, history.Installed, history.Installed, false, true},
		"does not stop":               {suspendNode{restless: true}, 0, history.NotInstalled, history.Installed, false, false},
		"clock goes on":               {suspendNode{deaf: true}, long, history.Installed, history.NotInstalled, true, false},
		"stamps by the stopped clock": {suspendNode{moved: true}, long, history.Installed, history.NotInstalled, true, false},
		"cannot be asked":             {suspendNode{mute: true}, long, history.Installed, history.Indeterminate, false, false},
		"for too short a time":        {suspendNode{}, 0, history.Installed, history.Indeterminate, false, false},
		"nothing there":               {suspendNode{ended: true}, 0, history.NotInstalled, history.Installed, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &c.node
			scope := chaos.Scope{On: []chaos.Node{n}, Service: n}
			if c.already {
				scope.Run = &faulttest.Run{GoOn: func() error { t.Error("it was continued"); return nil }}
			}
			heal, r, err := newFault(t, "clock-stop", "").Inject(t.Context(), scope)
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, "inject", r, c.made)
			time.Sleep(c.stands)
			r, err = heal(t.Context())
			if (err != nil) != c.wrong || n.stopped {
				t.Errorf("heal: %v; still stopped: %t", err, n.stopped)
			}
			faulttest.WantStatus(t, "heal", r, c.healed)
			t.Log(r.Evidence)
		})
	}
}

// TestSuspendedProcessEnds ends the process, and so its clock, while it is stopped.
func TestSuspendedProcessEnds(t *testing.T) {
	n := &suspendNode{}
	heal := faulttest.Injected(t, "stop", newFault(t, "clock-stop", ""), chaos.Scope{On: []chaos.Node{n}, Service: n})
	n.ended = true
	faulttest.Healed(t, "heal", heal)
}
