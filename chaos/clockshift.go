package chaos

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// CanClock is the capability of a ClockShifter.
const CanClock Capability = "clock"

// ClockShifter is a node whose process's wall clock can be moved, while its monotonic clock goes on as before.
type ClockShifter interface {
	// ShiftClock moves the clock by a shift that stands under the key. Shifts of one node add up.
	ShiftClock(ctx context.Context, key string, s ClockShift) (ClockShifted, error)
	// UnshiftClock takes one shift back.
	UnshiftClock(ctx context.Context, key string) (ClockShifted, error)
}

// ClockShift is what is done to a wall clock.
type ClockShift struct {
	Jump time.Duration
	Gain float64 // seconds that each second gains
}

// ClockShifted is what whoever moved the clock says of it. It is not taken for a proof.
type ClockShifted struct {
	Ahead time.Duration // of all shifts together, at Time
	Gain  float64       // of all shifts together
	Time  int64         // ns of CLOCK_MONOTONIC
	How   string        // for a receipt
	Gone  bool          // the process has ended: its clock went with it
}

// FactClock is the fact that tells a node's wall clock, in RFC 3339; FactMonotonic tells its monotonic clock in nanoseconds, where a
// node can be asked for it.
const (
	FactClock     = "clock"
	FactMonotonic = "monotonic"
)

type shiftable interface {
	Node
	ClockShifter
}

// shiftKey makes the keys of shifts.
var shiftKey atomic.Int64

// clockFault is what clock-jump and clock-drift have in common: a shift, and how a receipt is taken from the moved clock.
type clockFault struct {
	shift ClockShift
	// prove tells whether the clock is seen to do what was asked for.
	prove func(ctx context.Context, w *watched) (verdict, error)
}

// watched is one target and what was known of its clock before.
type watched struct {
	shiftable
	service Observer
	key     string
	shift   ClockShift
	said    ClockShifted
	before  stamp // zero: it could not be asked
	own     span  // by which it is ahead without any shift: another machine's clock
	mono    int64 // how far its monotonic clock was ahead of ours; see hasMono
	hasMono bool
}

// verdict is an answer with its evidence.
type verdict struct {
	status history.ReceiptStatus
	text   string
}

// Inject moves the clocks of all targets at once, and looks at them.
func (f clockFault) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	targets, err := capable[shiftable](s.On, CanClock)
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	var all []*watched
	for _, n := range targets {
		all = append(all, &watched{shiftable: n, service: s.Service, key: fmt.Sprintf("clock-%d", shiftKey.Add(1)), shift: f.shift})
	}
	heal := func(ctx context.Context) (history.Receipt, error) { return onEach(all, unshifted(ctx)) }
	receipt, err := onEach(all, func(w *watched) (history.Receipt, error) {
		if s.Continue == nil { // else it does not answer
			w.look(ctx)
		}
		var err error
		if w.said, err = w.ShiftClock(ctx, w.key, f.shift); err != nil {
			return history.Receipt{}, err
		}
		w.settle()
		if s.Continue != nil {
			if err := s.Continue(); err != nil {
				return history.Receipt{}, fmt.Errorf("continue it: %w", err)
			}
		}
		v, err := f.prove(ctx, w)
		if err != nil {
			return seen(history.Indeterminate, w.said.Time, fmt.Sprintf("%s: its clock could not be asked: %v", w.Name(), err)), nil
		}
		text := fmt.Sprintf("%s: %s; %s (%s)", w.Name(), v.text, w.monotonic(ctx), w.said.How)
		return seen(v.status, w.said.Time, text), nil
	})
	return heal, receipt, err
}

// unshifted takes a shift back and sees that the clock shows what is left.
func unshifted(ctx context.Context) func(*watched) (history.Receipt, error) {
	return func(w *watched) (history.Receipt, error) {
		said, err := w.UnshiftClock(ctx, w.key)
		if err != nil {
			return history.Receipt{}, err
		}
		if said.Gone {
			return seen(history.Installed, 0, w.Name()+": its process ended, and the clock with it"), nil
		}
		was := w.said
		w.said = said
		at := clock.Now()
		seenAhead, want, err := w.compare(ctx)
		if err != nil {
			// It was written back and read back; a server that is down or paused by another fault cannot be asked.
			return seen(history.Indeterminate, at, fmt.Sprintf("%s: its clock was put back, but could not be asked: %v", w.Name(), err)), nil
		}
		text := fmt.Sprintf("%s: ahead by %s, want %s", w.Name(), seenAhead, want)
		if !seenAhead.meets(want) {
			return seen(history.NotInstalled, at, text), fmt.Errorf("its clock is still off: ahead by %s, want %s (it was shifted by %v)", seenAhead, want, was.Ahead)
		}
		return seen(history.Installed, at, text), nil
	}
}

// look notes what the clocks of the node are before anything is done to them. What cannot be asked is left out.
func (w *watched) look(ctx context.Context) {
	if s, err := askClock(ctx, w.service, w.Name()); err == nil {
		w.before = s
	}
	w.mono, w.hasMono = w.monoAhead(ctx)
}

// settle finds by how much the node's machine is ahead by itself: by what was seen before, less what others had shifted it.
func (w *watched) settle() {
	if w.before.asked() {
		ahead, others := w.before.ahead(), w.said.Ahead-w.shift.Jump
		if own := (span{ahead.low - others, ahead.high - others}); !own.meets(span{}) {
			w.own = own
		}
	}
}

// compare asks for the clock, and tells by how much it is ahead of this machine's, and by how much it should be.
func (w *watched) compare(ctx context.Context) (ahead, want span, err error) {
	now, err := askClock(ctx, w.service, w.Name())
	if err != nil {
		return ahead, want, err
	}
	since := time.Duration(clock.Now() - w.said.Time)
	byNow := w.said.Ahead + time.Duration(w.said.Gain*float64(since))
	want = span{min(w.said.Ahead, byNow), max(w.said.Ahead, byNow)}
	// What is said was reckoned a little before it was heard, and of a clock that drifts is a little old.
	late := time.Duration(math.Abs(w.said.Gain) * float64(saidLate))
	want = span{want.low + w.own.low - late, want.high + w.own.high + late}
	return now.ahead(), want, nil
}

// saidLate bounds the time from the agent's reckoning to when its answer was heard.
const saidLate = 100 * time.Millisecond

// monoTolerance is how far two readings of one monotonic clock, over a control stream, may lie apart.
const monoTolerance = 250 * time.Millisecond

// monotonic says what is known of the node's monotonic clock.
func (w *watched) monotonic(ctx context.Context) string {
	ahead, ok := w.monoAhead(ctx)
	switch {
	case !ok:
		return "its monotonic clock cannot be asked for"
	case !w.hasMono:
		return fmt.Sprintf("its monotonic clock is ahead by %v", time.Duration(ahead))
	case time.Duration(ahead-w.mono).Abs() > monoTolerance:
		return fmt.Sprintf("its monotonic clock moved by %v, which it should not", time.Duration(ahead-w.mono))
	}
	return fmt.Sprintf("its monotonic clock is where it was, to %v", time.Duration(ahead-w.mono).Abs())
}

func (w *watched) monoAhead(ctx context.Context) (int64, bool) {
	if w.service == nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := w.service.Ask(ctx, w.Name(), FactMonotonic)
	var at int64
	if err != nil {
		return 0, false
	}
	if _, err := fmt.Sscan(answer, &at); err != nil {
		return 0, false
	}
	return at - clock.Now(), true
}
