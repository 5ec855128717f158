package cluster

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// counted is a driver whose processes end at once.
type counted struct{ starts int }

func (c *counted) start(context.Context) (Stdio, *ending, error) {
	c.starts++
	over := newEnding()
	close(over.seen)
	return Stdio{}, over, nil
}

func (c *counted) dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no port")
}

func (c *counted) signaller(context.Context) (signaller, error) { return nil, errors.New("no process") }

func TestRestartDelayPutsOffEveryStartButTheFirst(t *testing.T) {
	const delay = 50 * time.Millisecond
	d := &counted{}
	n := newNode(node.Spec{Name: "a", Restartable: true, RestartDelay: delay}, node.Place{})
	n.driver = d
	if got := n.Process.StartDelay(); got != 0 {
		t.Errorf("the first start is put off by %s", got)
	}
	if err := n.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := n.Process.StartDelay(); got != delay {
			t.Errorf("a later start is put off by %s, want %s", got, delay)
		}
		begin := time.Now()
		if err := n.Process.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < delay {
			t.Errorf("started again after %s, before its delay of %s", took, delay)
		}
	}
	if d.starts != 3 {
		t.Errorf("%d starts, want 3", d.starts)
	}
}

func TestARestartDelayEndsWithItsContext(t *testing.T) {
	d := &counted{}
	n := newNode(node.Spec{Name: "a", Restartable: true, RestartDelay: time.Hour}, node.Place{})
	n.driver = d
	if err := n.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Process.Start(ctx); !errors.Is(err, context.Canceled) || d.starts != 1 {
		t.Errorf("error %v, %d starts", err, d.starts)
	}
}

// tardy is a driver whose process is gone at the signal, and whose end is reported only after it was seen gone.
type tardy struct {
	counted
	over   *ending
	killed atomic.Bool
	reaped atomic.Int64 // ns
}

func (d *tardy) start(context.Context) (Stdio, *ending, error) { return Stdio{}, d.over, nil }

func (d *tardy) signaller(context.Context) (signaller, error) { return d, nil }

func (d *tardy) signal(context.Context, string) error {
	d.killed.Store(true)
	return nil
}

func (d *tardy) inspect(context.Context) (chaos.ProcessState, error) {
	s := chaos.ProcessState{PID: 7, Threads: map[string]int{"S": 1}, Time: clock.Now()}
	if d.killed.Load() {
		s.PID, s.Threads = 0, nil
		time.AfterFunc(20*time.Millisecond, func() {
			d.reaped.Store(clock.Now())
			close(d.over.seen)
		})
	}
	return s, nil
}

// TestKillIsSeenBeforeTheEngineReportsIt: an engine may take a second to report the end of a process that was gone long before.
func TestKillIsSeenBeforeTheEngineReportsIt(t *testing.T) {
	t.Parallel()
	d := &tardy{over: newEnding()}
	n := newNode(node.Spec{Name: "a"}, node.Place{})
	n.driver = d
	if err := n.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := clock.Now()
	s, err := n.Signals.Kill(t.Context())
	if err != nil || s.Sent < before || s.Time < s.Sent || s.Time >= d.reaped.Load() {
		t.Errorf("killed from %d on: %+v, %v; told at %d", before, s, err, d.reaped.Load())
	}
}

func TestANodeHasTheCapabilitiesOfItsParts(t *testing.T) {
	n := newNode(node.Spec{Name: "a"}, node.Place{})
	for what, has := range map[string]func(any) bool{
		"start":       can[chaos.Starter],
		"start late":  can[chaos.Delayed],
		"pause":       can[process.Pauser],
		"stop":        can[process.Stopper],
		"freeze":      can[process.Freezer],
		"ports":       can[chaos.Ported],
		"filter":      can[links.Filterer],
		"shape":       can[links.Shaper],
		"reset":       can[links.Resetter],
		"probe links": can[links.LinkProber],
		"shift":       can[wall.Shifter],
		"hold data":   can[disk.DataHolder],
		"hold syncs":  can[disk.SyncHolder],
		"cut power":   can[disk.PowerCutter],
		"foreign":     can[interface{ Foreign() bool }],
	} {
		if !has(n) || !has(&n.Links) {
			t.Errorf("%s: the node %t, its links %t", what, has(n), has(&n.Links))
		}
	}
}

func can[T any](n any) bool {
	able, ok := chaos.As[T](n)
	named, _ := any(able).(chaos.Node)
	return ok && named.Name() == "a"
}
