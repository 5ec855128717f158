package clock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
)

// span bounds the difference between two clocks, inclusively.
type span struct{ low, high time.Duration }

// meets reports whether the two spans overlap.
func (s span) meets(o span) bool { return s.low <= o.high && o.low <= s.high }

// String returns the middle of the span and its half width.
func (s span) String() string {
	half := (s.high - s.low) / 2
	if half == 0 {
		return s.low.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%v±%v", (s.low + half).Round(time.Millisecond), half.Round(100*time.Microsecond))
}

// stamp is one reading of a node's clock; the zero value is none.
type stamp struct{ chaos.ClockReading }

func (s stamp) asked() bool { return !s.Shown.IsZero() }

// ahead returns by how much the node's wall clock was ahead of this machine's.
func (s stamp) ahead() span {
	low, high := s.Ahead()
	return span{low, high}
}

const (
	// secondTries bounds the wait for the next second of a clock with a resolution of 1 s.
	secondTries = 1500 * time.Millisecond
	// secondEvery is the pause between two readings of such a clock.
	secondEvery = 2 * time.Millisecond
)

// askClock reads a node's clock over the service's own protocol. If the clock has a resolution of 1 s, askClock waits
// until a second begins.
func askClock(ctx context.Context, service chaos.Observer, node string) (stamp, error) {
	if service == nil {
		return stamp{}, errors.New("there is no service to ask")
	}
	first, err := chaos.ReadClock(ctx, service, node)
	if err != nil || !first.Whole {
		return stamp{first}, err
	}
	for end, over := clock.Now()+int64(secondTries), false; !over; {
		over = clock.Now() > end // read once more: this process may have been descheduled
		if err := clock.Sleep(ctx, secondEvery); err != nil {
			return stamp{}, err
		}
		next, err := chaos.ReadClock(ctx, service, node)
		if err != nil {
			return stamp{}, err
		}
		if !next.Shown.Equal(first.Shown) {
			next.From, next.FromMono = first.From, first.FromMono
			return stamp{next}, nil
		}
		first = next
	}
	return stamp{}, fmt.Errorf("its clock reads %s", first.Shown.Format(time.RFC3339))
}

// rate returns bounds of the rate of a node's clock against ours, between two readings.
func rate(a, b stamp) (low, high float64) {
	went := float64(b.Shown.Sub(a.Shown))
	longest, shortest := float64(b.ToMono-a.FromMono), float64(b.FromMono-a.ToMono)
	if shortest <= 0 {
		return 0, went
	}
	var cut float64 // how far readings may be off if the program has only whole milliseconds, as Node.js does
	if a.wholeMillis() && b.wholeMillis() {
		cut = float64(time.Millisecond)
	}
	least, most := went-cut, went+cut
	return min(least/longest, least/shortest), max(most/longest, most/shortest)
}

func (s stamp) wholeMillis() bool { return s.Shown.Equal(s.Shown.Truncate(time.Millisecond)) }
