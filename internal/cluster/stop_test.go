package cluster

import (
	"context"
	"errors"
	"testing"
	"time"
)

func stops(t *testing.T, n *Node) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := n.Signals.Stop(ctx)
	t.Logf("%+v", e)
	if err != nil || !e.Gone || e.How == "" || e.Killed || e.Signal != "TERM" || n.Process.Running() {
		t.Fatalf("stopped: %+v, %v, running %t", e, err, n.Process.Running())
	}
	if _, err := n.Signals.Stop(ctx); err == nil {
		t.Error("a node that has ended was stopped")
	}
	if err := n.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	serves(t, n, "start 2")
	if _, err := n.Signals.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if e, err := n.Signals.Stop(short); e.Gone || err != nil && !errors.Is(err, context.DeadlineExceeded) { // a stall may come before the signal
		t.Errorf("a paused node was stopped: %+v, %v", e, err)
	}
	over := n.Process.last()
	if _, err := n.Signals.Kill(t.Context()); err != nil || !over.killed {
		t.Errorf("killed: %v, and its end is %q", err, over.how)
	}
	if err := n.Process.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	serves(t, n, "start 3")
}
