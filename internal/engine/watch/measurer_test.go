package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/wire"
)

// anHourAhead returns a clock that is ahead by an hour and takes a millisecond to answer; while silent returns true,
// it does not answer at all.
func anHourAhead(name string, silent func() bool) *wire.RemoteClock {
	return wire.NewRemoteClock(name, func(ctx context.Context) (int64, error) {
		if silent() {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}
		time.Sleep(time.Millisecond)
		return clock.Now() + int64(time.Hour), nil
	})
}

// TestClocksAreMeasuredAgain every few seconds. A clock that does not answer is left out, which is reported, and does
// not make a run unknown.
func TestClocksAreMeasuredAgain(t *testing.T) {
	m := measurer(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		never := func() bool { return false }
		after := func(from, until time.Duration) func() bool {
			return func() bool { return time.Since(began) >= from && time.Since(began) < until }
		}
		clocks := []*wire.RemoteClock{
			anHourAhead("client-1", never), anHourAhead("client-2", after(time.Second, 5*time.Second)), anHourAhead("client-3", after(7*time.Second, time.Hour)),
			anHourAhead("client-4", after(7*time.Second, time.Hour)),
		}
		for i, c := range clocks {
			if _, err := c.Measure(t.Context()); err != nil {
				t.Fatal(err)
			}
			m.clocks = append(m.clocks, &measuredClock{RemoteClock: c, name: "client-" + string(rune('1'+i)), running: func() bool { return i < 3 }})
		}
		agent, same := anHourAhead("agent", never), anHourAhead("agent", never)
		if _, err := agent.Measure(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.Keep(t.Context(), []*wire.RemoteClock{agent, same})
		time.Sleep(7*time.Second - time.Since(began))
		m.Finish(t.Context())
		if same.Separate() || len(m.clocks) != 5 || m.clocks[4].made < 3 || m.clocks[4].name != "agent 1" {
			t.Errorf("of the agents' clocks the one that is not the run's is measured: %d clocks, %+v", len(m.clocks), m.clocks[len(m.clocks)-1])
		}
	})
	if len(m.Dir.Env.Unknown) > 0 {
		t.Errorf("the run is unknown: %q", m.Dir.Env.Unknown)
	}
	said := strings.Join(m.Dir.Env.Warnings, "\n")
	for text, want := range map[string]int{
		"of 3 measurements of the clock of client-2 are missing": 1, "the clock of client-3 was not measured after the load": 1, "the error of its times grows by 500 ppm": 1, "client-1": 0, "client-4": 0, "agent": 0,
	} {
		if strings.Count(said, text) != want {
			t.Errorf("%q is said %d times, want %d: %s", text, strings.Count(said, text), want, said)
		}
	}
	b, err := os.ReadFile(filepath.Join(m.Dir.HistoryDir(), history.Clocks))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"client-1": 4, "client-2": 2, "client-3": 3, "agent": 0} {
		if got := strings.Count(string(b), `"process":"`+name+`"`); got != want {
			t.Errorf("%d measurements of %s, want %d:\n%s", got, name, want, b)
		}
	}
}

// measurer returns a measurer for a run directory that has only the folder of the history.
func measurer(t *testing.T) *Measurer {
	t.Helper()
	m := &Measurer{Dir: &rundir.Dir{Path: t.TempDir(), Log: slog.New(slog.DiscardHandler)}}
	if err := os.Mkdir(m.Dir.HistoryDir(), 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}
