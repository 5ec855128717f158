package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// TestInconsistentEventEndsTheRun: the event is reported and kept for the judge, and nothing after it.
func TestInconsistentEventEndsTheRun(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, scripts: map[string]script{"client-1": {begins: func(a *fakeNode) {
		a.grant()
		a.mu.Lock()
		defer a.mu.Unlock()
		_ = a.conn.SendEvents([]history.Event{
			{Time: a.last, Seq: 3, Op: 3, Kind: history.Renewed, Phase: history.Info, Grant: 99, Valid: 5},
			{Time: a.last, Seq: 4, Op: 4, Kind: history.Lost, Phase: history.Info, Grant: 1},
		})
	}}}}
	got := s.run(t.Context(), strings.Replace(scheduled(), "for: 400ms", "for: 30s", 1))
	refused(t, got)
	if took := time.Duration(got.env.End - got.env.Start); took > 20*time.Second {
		t.Errorf("the run went on for %v", took)
	}
	if n, after := len(got.events(t, history.Renewed)), len(got.events(t, history.Lost)); n != 1 || after != 0 || len(got.events(t, history.Acquire)) != 2 {
		t.Errorf("the history tells of %d such events and %d behind them", n, after)
	}
}

// TestDeathExcusesNoInconsistentEvent: a client that will die may be silent, but may not send impossible events.
func TestDeathExcusesNoInconsistentEvent(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, scripts: map[string]script{"client-1": {commanded: func(a *fakeNode, c wire.Command) *wire.Result {
		if c.Do == wire.DoAcquire {
			a.grant()
			a.emit(history.Event{Kind: history.Renewed, Phase: history.Info, Grant: 99, Valid: 5})
			_ = a.conn.Send(wire.Frame{Type: wire.TypePoint, Point: &wire.Point{Point: "before-free"}})
			a.die()
			return nil
		}
		return &wire.Result{Outcome: wire.OutcomeOK}
	}}}}
	got := s.run(t.Context(), directed(
		"{do: arm, user: A, point: before-free, action: die}", "{do: acquire, user: A, async: true}", "{await: elapsed, for: 20s, within: 30s}",
	))
	refused(t, got)
	if took := time.Duration(got.env.End - got.env.Start); took > 15*time.Second {
		t.Errorf("the run went on for %v", took)
	}
}

// TestTheLastEventMayMakeNoSense: events after the load count too, also those of a client that was to die and did
// not.
func TestTheLastEventMayMakeNoSense(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, scripts: map[string]script{"client-1": {
		commanded: func(a *fakeNode, c wire.Command) *wire.Result {
			if c.Do == wire.DoAcquire {
				a.grant()
			}
			return &wire.Result{Outcome: wire.OutcomeOK}
		},
		ends: func(a *fakeNode, _ *wire.Done) error {
			a.emit(history.Event{Kind: history.Renewed, Phase: history.Info, Grant: 99, Valid: 5})
			return nil
		},
	}}}
	refused(t, s.run(t.Context(), directed("{do: arm, user: A, point: before-free, action: die}", "{do: acquire, user: A}")))
}

func refused(t *testing.T, got finishedRun) {
	t.Helper()
	var n *history.Nonsense
	if got.err != nil || !errors.As(got.wrong, &n) || !errors.Is(got.wrong, history.ErrCorrupt) || got.report.Verdict != results.Unknown {
		t.Errorf("the run ended with %v, the judge with %v and %s", got.err, got.wrong, got.report.Verdict)
	}
	const want = "client-1: event 3 (renewed info of client-1/0) is inconsistent: its grant is 99"
	if len(got.env.Unknown) == 0 || !strings.HasPrefix(got.env.Unknown[0], want) {
		t.Errorf("the reasons are %q, want %q", got.env.Unknown, want)
	}
}
