package wire

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

func TestSharedClock(t *testing.T) {
	boot, ns := clock.BootID(), clock.TimeNamespace()
	if boot == "" {
		t.Skip("this machine does not tell its boot id")
	}
	for _, c := range []struct {
		boot, ns string
		want     bool
	}{{boot, ns, true}, {boot, "time:[1]", false}, {"elsewhere", ns, false}, {"", ns, false}} {
		if got := SameClock(c.boot, c.ns); got != c.want {
			t.Errorf("boot id %q, time namespace %q: %t", c.boot, c.ns, got)
		}
	}
}

// TestARemoteClock uses a clock that is an hour ahead. A few of its answers are quick, since a stall may delay one of
// them. Those are read when they come, the others late.
func TestARemoteClock(t *testing.T) {
	const hour, quick, slow = int64(time.Hour), time.Millisecond, 10 * time.Millisecond
	asked, ahead := 0, hour
	c := NewRemoteClock("client-1", func(context.Context) (int64, error) {
		asked++
		if asked%questions > questions-10 {
			time.Sleep(quick)
		} else {
			time.Sleep(slow)
		}
		return clock.Now() + ahead, nil
	})
	if c.Separate() || c.Run(5) != 5 || c.Own(5) != 5 || c.Error(5) != 0 || c.Stepped() != "" {
		t.Error("before it is measured it is the run's")
	}
	m, err := c.Measure(t.Context())
	if err != nil || asked != questions || m.Process != "client-1" || m.ErrorNS < int64(quick)/2 || m.ErrorNS > int64(slow)/2 {
		t.Fatalf("%d questions: %+v, %v", asked, m, err)
	}
	now := clock.Now()
	run := c.Run(now + hour)
	if off := run - now; off > c.Error(run) || off < -c.Error(run) || c.Error(run) < m.ErrorNS || c.Own(run)-now-hour > 1000 || !c.Separate() {
		t.Errorf("it is told to be %d ahead of the run's, and to err by %d", off, c.Error(run))
	}
	ahead -= int64(time.Second)
	if _, err := c.Measure(t.Context()); err != nil || !strings.HasPrefix(c.Stepped(), "client-1: its clock was set or stood still") {
		t.Errorf("it was set back by a second: %q, %v", c.Stepped(), err)
	}
}

func TestAClockWithoutAnAnswerIsNotMeasured(t *testing.T) {
	gone := errors.New("gone")
	asked := 0
	c := NewRemoteClock("client-1", func(context.Context) (int64, error) {
		if asked++; asked == questions {
			return 0, gone
		}
		return 1, nil
	})
	if _, err := c.Measure(t.Context()); !errors.Is(err, gone) || c.Separate() {
		t.Errorf("%v", err)
	}
}
