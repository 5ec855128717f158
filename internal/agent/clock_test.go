package agent_test

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// TestAgentTimesUseTheRunsClock: the agent's times are kept if its clock is the run's, and converted if not.
func TestAgentTimesUseTheRunsClock(t *testing.T) {
	c, _ := agenttest.Serve(t)
	p, err := c.Own(t.Context(), agenttest.Sleeper(t).Process.Pid, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, separate := range []bool{false, true} {
		if separate {
			if _, err := c.Clock().Measure(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		before := clock.Now()
		s, err := c.Inspect(t.Context(), p)
		if err != nil || c.Clock().Separate() != separate || (s.TimeError > 0) != separate {
			t.Errorf("separate clocks %t: %+v, %v", separate, s, err)
		}
		if s.Time < before-s.TimeError || s.Time > clock.Now()+s.TimeError {
			t.Errorf("it was seen at %d, and asked for at %d", s.Time, before)
		}
		if seen, err := c.SignalSeen(t.Context(), p, "STOP"); err != nil || seen == nil || (seen.TimeError > 0) != separate {
			t.Errorf("separate clocks %t: the stop was %+v, %v", separate, seen, err)
		}
	}
}

// TestAnAgentElsewhereIsMeasuredAtOnce: the greeting of this agent names another machine. Its clock is an hour ahead.
func TestAnAgentElsewhereIsMeasuredAtOnce(t *testing.T) {
	const hour = int64(time.Hour)
	toAgent, in := io.Pipe()
	out, fromAgent := io.Pipe()
	go func() {
		defer fromAgent.Close()
		enc, dec := json.NewEncoder(fromAgent), json.NewDecoder(toAgent)
		err := enc.Encode(map[string]any{"version": agent.Version, "pid": 7, "boot_id": "elsewhere"})
		for err == nil {
			var r struct {
				ID uint64 `json:"id"`
				Do string `json:"do"`
			}
			if err = dec.Decode(&r); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
			at := clock.Now() + hour
			if r.Do == "signal" {
				time.Sleep(100 * time.Millisecond) // its answer is late
			}
			err = enc.Encode(map[string]any{"id": r.ID, "at": at, "now": clock.Now() + hour, "state": map[string]any{"pid": 9, "time": clock.Now() + hour}})
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), agenttest.Patience)
	defer cancel()
	c, err := agent.Connect(ctx, in, out)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	before := clock.Now()
	s, err := c.Inspect(ctx, proc.Process{PID: 9})
	if err != nil || s.TimeError <= 0 || s.Time < before-s.TimeError || s.Time > clock.Now()+s.TimeError {
		t.Errorf("it was asked at %d: %+v, %v", before, s, err)
	}
	noted, acts := clock.WithActs(ctx)
	acting, done := clock.Act(noted)
	if err := c.Signal(acting, proc.Process{PID: 9}, "STOP"); err != nil {
		t.Error(err)
	}
	answered := clock.Now()
	done()
	if at := acts.Done(); at < before || at > answered-int64(100*time.Millisecond)+s.TimeError {
		t.Errorf("the signal was sent at %d, and the answer came at %d", at, answered)
	}
	_ = in.Close()
	if _, err := c.Clock().Measure(ctx); err == nil || !strings.Contains(err.Error(), "agent: clock: ") {
		t.Errorf("an agent that is gone was measured: %v", err)
	}
}
