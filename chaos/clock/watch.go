package clock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// watched is one target and the state of its clock before the fault.
type watched struct {
	shiftable
	service chaos.Observer
	key     string
	shift   Shift
	said    Shifted
	before  stamp  // zero: it could not be asked
	how     string // how the last reading was obtained
	own     span   // how far it is ahead without any shift: another machine's clock
	mono    monoReading
}

// monoReading is a reading of how far a node's monotonic clock is ahead of ours.
type monoReading struct {
	ahead, err time.Duration
	how        string // how it was read, or why it was not
	known      bool
}

// maxUnsettled is how often a check of a clock is repeated because another fault moved it meanwhile.
const maxUnsettled = 8

// look reads the clocks of the node before the fault. Clocks that cannot be read are left out.
func (w *watched) look(ctx context.Context) {
	w.mono = w.monoAhead(ctx)
	end := clock.Now() + int64(seenWithin(w.shift))
	for range maxUnsettled {
		before, err := w.ClockShifts(ctx)
		if err != nil {
			return
		}
		s, err := w.ask(ctx)
		if err != nil {
			return
		}
		after, err := w.ClockShifts(ctx)
		if err != nil {
			return
		}
		if after.Changes != before.Changes {
			continue
		}
		ahead, others := s.ahead(), after.around(before.Time)
		own := span{ahead.low - others.high, ahead.high - others.low}
		w.before, w.own = s, span{}
		if own.meets(span{}) {
			return
		}
		w.own = own // another machine's clock, or the process has not yet seen its current shifts
		if clock.Now() > end || clock.Sleep(ctx, seenWithin(w.shift)/(maxUnsettled-2)) != nil {
			return
		}
	}
}

// settled repeats the check until the process must have seen the shift and no other fault moved the clock meanwhile.
func (w *watched) settled(ctx context.Context, prove func(context.Context, *watched) (verdict, error)) (verdict,
	error,
) {
	end := clock.Now() + int64(seenWithin(w.shift))
	for unsettled := 0; unsettled < maxUnsettled; {
		v, err := prove(ctx, w)
		if err != nil {
			return v, err
		}
		now, err := w.ClockShifts(ctx)
		switch {
		case err != nil:
			return v, fmt.Errorf("the cause of its movement cannot be asked: %w", err)
		case now.Gone:
			return v, errors.New("its process has ended")
		case now.Changes != w.said.Changes:
			now.How = w.said.How
			w.said = now
			unsettled++
			continue
		case v.status != history.NotInstalled || clock.Now() > end:
			return v, nil
		}
		if err := clock.Sleep(ctx, 20*time.Millisecond); err != nil {
			return v, err
		}
	}
	return verdict{}, errors.New("other active faults move it")
}

// around bounds how far the clock was ahead between then and now.
func (s Shifted) around(then int64) span {
	at := func(t int64) time.Duration { return s.Ahead + time.Duration(s.Gain*float64(t-s.Time)) }
	a, b := at(then), at(clock.Now())
	// The agent computed this before its answer arrived, so for a drifting clock it is a little old.
	late := time.Duration(math.Abs(s.Gain) * float64(s.Time-s.Asked))
	return span{min(a, b) - late, max(a, b) + late}
}

// ask reads the node's clock.
func (w *watched) ask(ctx context.Context) (stamp, error) {
	s, err := askClock(ctx, w.service, w.Name())
	w.how = s.How
	return s, err
}

// account says how the last reading was obtained, for the receipt.
func (w *watched) account() string {
	if w.how == "" {
		return "itself"
	}
	return "its own clock, " + w.how + ","
}

// compare reads the clock and returns how far it is ahead of this machine's, and how far it should be.
func (w *watched) compare(ctx context.Context) (ahead, want span, err error) {
	now, err := w.ask(ctx)
	if err != nil {
		return ahead, want, err
	}
	want = w.said.around(w.said.Time)
	want = span{want.low + w.own.low, want.high + w.own.high}
	return now.ahead(), want, nil
}

// monoTolerance is how far two readings of one monotonic clock may differ, besides the time that they took.
const monoTolerance = 250 * time.Millisecond

// monotonic describes the node's monotonic clock and reports whether it has moved.
func (w *watched) monotonic(ctx context.Context) (text string, moved bool) {
	now := w.monoAhead(ctx)
	by := now.ahead - w.mono.ahead
	switch asked := w.mono.known && w.mono.how == now.how; { // two ways of reading may count from different times
	case !now.known:
		return "its monotonic clock was not read: " + now.how, false
	case !asked && now.ahead.Abs() <= monoTolerance+now.err:
		return "it uses the monotonic clock of this machine" + now.how, false
	case !asked:
		return "its monotonic clock was not read before, or by a different method", false
	case by.Abs() > monoTolerance+now.err+w.mono.err:
		return fmt.Sprintf("its monotonic clock moved by %v unexpectedly%s", by.Round(time.Millisecond),
			now.how), true
	}
	return fmt.Sprintf("its monotonic clock is unchanged, to %v%s", by.Abs().Round(time.Millisecond), now.how), false
}

// monoAhead reads the node's monotonic clock.
func (w *watched) monoAhead(ctx context.Context) monoReading {
	return w.clockAhead(ctx, chaos.FactMonotonic)
}

// clockAhead reads a clock of the node that counts nanoseconds.
func (w *watched) clockAhead(ctx context.Context, fact string) monoReading {
	if w.service == nil {
		return monoReading{how: "there is nothing to ask"}
	}
	ctx, cancel := context.WithTimeout(ctx, chaos.AskTimeout)
	defer cancel()
	from := clock.Now()
	answer, err := w.service.Ask(ctx, w.Name(), fact)
	to := clock.Now()
	if err != nil {
		return monoReading{how: err.Error()}
	}
	number, how, _ := strings.Cut(answer, " ")
	at, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return monoReading{how: err.Error()}
	}
	if how != "" {
		how = " (" + how + ")"
	}
	half := (to - from + 1) / 2
	return monoReading{ahead: time.Duration(at - from - half), err: time.Duration(half), how: how, known: true}
}
