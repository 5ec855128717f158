package clock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// CanClock is the capability of a Shifter.
const CanClock chaos.Capability = "clock"

// Preload makes the node's programs load libfaketime before the C library, so that their wall clock can be moved. It
// affects programs that ask the C library for the time: C and the JVM, not Go.
const Preload node.Preparation = "preload"

// Shifter is a node whose clocks can be moved: the wall clock alone, or the monotonic clock backward.
type Shifter interface {
	// ShiftClock moves the clock by a shift that is stored under the key. The shifts of a node add up. A process that
	// replaces an ended one gets all its shifts. If the node is down the answer says Gone, and its next process gets
	// the shift.
	ShiftClock(ctx context.Context, key string, s Shift) (Shifted, error)
	// UnshiftClock undoes one shift.
	UnshiftClock(ctx context.Context, key string) (Shifted, error)
	// ClockShifts returns the current shift.
	ClockShifts(ctx context.Context) (Shifted, error)
}

// Shifted is the node's own report of its moved clock. A receipt does not rely on it alone.
type Shifted struct {
	Ahead time.Duration // of all shifts together, at some moment between Asked and Time
	Gain  float64       // of all shifts together
	Still time.Duration // for which its monotonic clock stood still, of all shifts together
	Asked int64         // ns of CLOCK_MONOTONIC, when the agent was asked
	Time  int64         // and when its answer had arrived
	How   string        // for the receipt
	Gone  bool          // there is no process, and so no clock
	// Changes grows with each change of the node's clock: two answers with the same value have no change between them.
	Changes int64
}

// seenWithin returns how long programs may take to see a shift.
func seenWithin(s Shift) time.Duration {
	if s.How == ByFaketime {
		return faketimeSeen
	}
	return vdsoSeen
}

const (
	// faketimeSeen: libfaketime reads its file once a second; 1.1 to 1.8 s were seen.
	faketimeSeen = 5 * time.Second
	// vdsoSeen: a patch acts at once, but a program that was just started may lose it once.
	vdsoSeen = 500 * time.Millisecond
)

type shiftable interface {
	chaos.Node
	Shifter
}

// shiftKey makes the keys of shifts.
var shiftKey atomic.Int64

// clockFault is the common part of clock-jump and clock-drift: the shift and the receipt from the moved clock.
//
// Example: clock-jump by +60s on redis-1. Before it, TIME of redis-1 is 0.2 ms ahead of this machine. The agent moves
// the clock. Now TIME is 60.0003 s ahead, which is 60 s within the duration of the question: installed. Had it stayed
// at 0.2 ms, the receipt would be not-installed, whatever the agent says.
type clockFault struct {
	shift Shift
	// prove judges whether the clock does what was asked for.
	prove func(ctx context.Context, w *watched) (verdict, error)
}

// Preparations asks for libfaketime, which a process must load at its start.
func (f clockFault) Preparations() []node.Preparation {
	if f.shift.How == ByFaketime {
		return []node.Preparation{Preload}
	}
	return nil
}

// Excludes keeps the two mechanisms apart. libfaketime uses the patched clock to decide when to read its file again:
// set back by an hour, it would not read for an hour.
func (f clockFault) Excludes() (p node.Preparation, why string) {
	if f.shift.How == ByFaketime {
		return "", ""
	}
	return Preload, "another clock fault there uses libfaketime, which does not work with a patched clock; use the same how for all clock faults of a node"
}

// Needs leaves out the vDSO patch if libfaketime is used.
func (f clockFault) Needs() []chaos.Capability {
	if f.shift.How == ByFaketime {
		return []chaos.Capability{chaos.CanInspect}
	}
	return []chaos.Capability{CanClock}
}

// verdict is a status with its evidence.
type verdict struct {
	status history.ReceiptStatus
	text   string
}

// Inject moves the clocks of all targets concurrently and checks them.
func (f clockFault) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	heal, receipt, err := chaos.AtOnce(s, CanClock,
		func(n shiftable, shiftedNodes *chaos.Hits[*watched]) (history.Receipt, error) {
			w := &watched{
				shiftable: n, service: s.Service, key: fmt.Sprintf("clock-%d", shiftKey.Add(1)),
				shift: f.shift,
			}
			return f.shiftOne(ctx, s, w, shiftedNodes)
		}, func(ctx context.Context, w *watched) (history.Receipt, error) { return w.unshift(ctx) })
	receipt.By = f.shift.How
	return heal, receipt, err
}

func (f clockFault) shiftOne(ctx context.Context, s chaos.Scope, w *watched,
	shiftedNodes *chaos.Hits[*watched],
) (history.Receipt, error) {
	stopped := s.Run != nil && s.Run.Stopped()
	if !stopped { // a paused target does not answer
		waited := clock.Waits(ctx, seenWithin(f.shift)+chaos.AskTimeout)
		w.look(ctx)
		waited()
	}
	shiftedNodes.Note(w)
	var err error
	if w.said, err = w.ShiftClock(ctx, w.key, f.shift); err != nil {
		return history.Receipt{}, err
	}
	if w.said.Gone {
		return chaos.Seen(history.Indeterminate, w.said.Time, w.Name()+
			": it has no process; the clock of its next one will be moved"), nil
	}
	shifted := w.said.Time
	if stopped {
		if err := s.Run.Continue(); err != nil {
			return history.Receipt{}, fmt.Errorf("continue it: %w", err)
		}
	}
	waited := clock.Waits(ctx, seenWithin(f.shift)+chaos.AskTimeout)
	v, err := w.settled(ctx, f.prove)
	waited()
	if err != nil {
		return chaos.Seen(history.Indeterminate, shifted, fmt.Sprintf("%s: its clock could not be read: %v", w.Name(),
			err)), nil
	}
	if f.shift.How == ByFaketime {
		shifted = clock.Now() // the shift was in place by now, and not earlier
	}
	mono, moved := w.monotonic(ctx)
	if moved {
		v.status = history.NotInstalled // a moved monotonic clock would be another fault
	}
	return chaos.Seen(v.status, shifted, fmt.Sprintf("%s: %s; %s (%s)", w.Name(), v.text, mono, w.said.How)), nil
}

// unshift undoes a shift and checks that the clock shows only the remaining ones.
func (w *watched) unshift(ctx context.Context) (history.Receipt, error) {
	said, err := w.UnshiftClock(ctx, w.key)
	if err != nil {
		return history.Receipt{}, err
	}
	if said.Gone {
		return chaos.Seen(history.Installed, 0, w.Name()+": its process ended, and the clock with it"), nil
	}
	was := w.said
	w.said = said
	at := clock.Now()
	v, err := w.settled(ctx, func(ctx context.Context, w *watched) (verdict, error) {
		ahead, want, err := w.compare(ctx)
		v := verdict{history.Installed, fmt.Sprintf("ahead by %s, want %s", ahead, want)}
		if !ahead.meets(want) {
			v.status = history.NotInstalled
		}
		return v, err
	})
	if err != nil {
		// The shift was undone and read back, but a server that another fault took down or paused cannot be asked.
		return chaos.Seen(history.Indeterminate, at,
			fmt.Sprintf("%s: its clock was reset, but could not be read: %v", w.Name(), err)), nil
	}
	if w.shift.How == ByFaketime {
		at = clock.Now()
	}
	if v.status == history.NotInstalled {
		err = fmt.Errorf("its clock is still off: %s (it was shifted by %v)", v.text, was.Ahead)
	}
	return chaos.Seen(v.status, at, w.Name()+": "+v.text), err
}
