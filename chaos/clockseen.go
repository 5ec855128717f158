package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// span is what is known of a difference between two clocks: it lies between the two, inclusive.
type span struct{ low, high time.Duration }

// meets tells whether both can be true of one difference.
func (s span) meets(o span) bool { return s.low <= o.high && o.low <= s.high }

// String gives the middle and how far the difference may lie from it.
func (s span) String() string {
	half := (s.high - s.low) / 2
	if half == 0 {
		return s.low.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%v±%v", (s.low + half).Round(time.Millisecond), half.Round(100*time.Microsecond))
}

// stamp is one reading of a node's clock: it showed shown at some moment between from and to of this machine's clocks.
type stamp struct {
	shown              time.Time
	how                string // it came to be known; "" over the service's own protocol
	from, to           time.Time
	fromMono, untoMono int64 // the same moments on CLOCK_MONOTONIC, ns
}

func (s stamp) asked() bool { return !s.shown.IsZero() }

// ahead is by how much the node's wall clock was ahead of this machine's.
func (s stamp) ahead() span { return span{s.shown.Sub(s.to), s.shown.Sub(s.from)} }

const (
	// staleClock is how much older than its question an answer may be: servers that keep one time for a round of their
	// event loop.
	staleClock = 5 * time.Millisecond
	// secondTries bounds the wait for a clock that tells whole seconds to show the next one.
	secondTries = 1500 * time.Millisecond
	// secondEvery is the pause between two looks at such a clock.
	secondEvery = 2 * time.Millisecond
)

// askClock reads a node's clock over the service's own protocol. Of a clock that tells whole seconds it waits for the moment at
// which a second begins.
func askClock(ctx context.Context, service Observer, node string) (stamp, error) {
	if service == nil {
		return stamp{}, errors.New("there is no service to ask")
	}
	first, whole, err := readClock(ctx, service, node)
	if err != nil || !whole {
		return first, err
	}
	for end := clock.Now() + int64(secondTries); clock.Now() < end; {
		if err := clock.Sleep(ctx, secondEvery); err != nil {
			return stamp{}, err
		}
		next, _, err := readClock(ctx, service, node)
		if err != nil {
			return stamp{}, err
		}
		if !next.shown.Equal(first.shown) {
			next.from, next.fromMono = first.from, first.fromMono
			return next, nil
		}
		first = next
	}
	return stamp{}, fmt.Errorf("its clock stands at %s", first.shown.Format(time.RFC3339))
}

// readClock asks once. whole tells whether the answer is in whole seconds.
func readClock(ctx context.Context, service Observer, node string) (s stamp, whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	s.from, s.fromMono = clock.Wall().Add(-staleClock), clock.Now()-int64(staleClock)
	answer, err := service.Ask(ctx, node, FactClock)
	s.to, s.untoMono = clock.Wall(), clock.Now()
	if err != nil {
		return stamp{}, false, err
	}
	answer, s.how, _ = strings.Cut(answer, " ")
	s.shown, err = time.Parse(time.RFC3339Nano, answer)
	return s, !strings.Contains(answer, "."), err
}

// ClockAhead asks a node for its wall clock once, by FactClock. By how much it is ahead of this machine's lies between the two; the
// answer's own grain is within them.
func ClockAhead(ctx context.Context, service Observer, node string) (low, high time.Duration, err error) {
	s, whole, err := readClock(ctx, service, node)
	if err != nil {
		return 0, 0, err
	}
	grain := time.Millisecond
	if whole {
		grain = time.Second
	}
	ahead := s.ahead()
	return ahead.low, ahead.high + grain, nil
}

// rate bounds the seconds that a node's clock went on for each second of ours, between two readings.
func rate(a, b stamp) (low, high float64) {
	went := float64(b.shown.Sub(a.shown))
	longest, shortest := float64(b.untoMono-a.fromMono), float64(b.fromMono-a.untoMono)
	if shortest <= 0 {
		return 0, went
	}
	low, high = went/longest, went/shortest
	return min(low, high), max(low, high)
}
