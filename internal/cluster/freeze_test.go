package cluster

import (
	"testing"
	"time"
)

// freezes freezes a node, alone, with a pause on top and below, and leaves it frozen for the restart that comes next.
func freezes(t *testing.T, n *Node) {
	ctx := t.Context()
	known := wantFrozen(t, n, false)
	for range 2 {
		if err := n.Signals.Freeze(ctx); err != nil {
			t.Fatal(err)
		}
	}
	wantFrozen(t, n, true)
	if got, err := greeting(ctx, n, 200*time.Millisecond); err == nil {
		t.Errorf("a frozen node greets with %q", got)
	}
	for _, left := range []int{1, 0} {
		if err := n.Signals.Thaw(ctx); err != nil || n.Signals.Freezes() != left {
			t.Fatalf("thawed: %v, %d freezes left, want %d", err, n.Signals.Freezes(), left)
		}
		wantFrozen(t, n, left > 0)
	}
	serves(t, n, "start 1")
	if known { // otherwise a pending pause is not seen, and not believed
		pausesWhileFrozen(t, n)
	}
}

// wantFrozen fails the test unless the node is frozen, or is not, and reports whether the kernel was asked.
func wantFrozen(t *testing.T, n *Node, want bool) (known bool) {
	t.Helper()
	f, err := n.Signals.Frozen(t.Context())
	if err != nil || f.Frozen != want || f.Outside != 0 || f.Gone || f.Time == 0 {
		t.Fatalf("frozen %t is wanted: %+v, %v", want, f, err)
	}
	t.Logf("%s: %s", n.Name(), f.Said)
	return f.Known()
}

func pausesWhileFrozen(t *testing.T, n *Node) {
	ctx := t.Context()
	for _, pauseFirst := range []bool{true, false} {
		both := []func() error{
			func() error { _, err := n.Signals.Pause(ctx); return err }, func() error { return n.Signals.Freeze(ctx) },
		}
		if !pauseFirst {
			both[0], both[1] = both[1], both[0]
		}
		for _, do := range both {
			if err := do(); err != nil {
				t.Fatal(err)
			}
		}
		if pauseFirst {
			if _, err := n.Signals.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			if s, err := n.Signals.Inspect(ctx); err != nil || s.Stopped() || s.Frozen == "" {
				t.Errorf("frozen, and continued: %v, %v", s, err)
			}
			wantFrozen(t, n, true)
		} else {
			if s, err := n.Signals.Inspect(ctx); err != nil || !s.Stopped() || !s.Waits {
				t.Errorf("stopped while frozen: %v, %v", s, err)
			}
		}
		if err := n.Signals.Thaw(ctx); err != nil {
			t.Fatal(err)
		}
		wantFrozen(t, n, false)
		if !pauseFirst {
			if s, err := n.Signals.Inspect(ctx); err != nil || s.Threads["T"] == 0 {
				t.Errorf("thawed, and stopped: %v, %v", s, err)
			}
			if _, err := n.Signals.Resume(ctx); err != nil {
				t.Fatal(err)
			}
		}
		serves(t, n, "start 1")
	}
	if err := n.Signals.Freeze(ctx); err != nil { // the next restart kills it frozen
		t.Fatal(err)
	}
}
