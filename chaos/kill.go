package chaos

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockquake/lockquake/history"
)

// kill ends a process with SIGKILL: a crash. What it had handed to the kernel is safe; this is no loss of power.
type kill struct{}

func killKind() Kind {
	return Kind{
		Name: "kill",
		Doc: "Ends the target with SIGKILL; receipt: the process is gone. The heal starts a server again and waits until it " +
			"serves, or runs while other faults stand; a client stays dead.",
		Needs:   []Capability{CanInspect, CanKill},
		Lasting: true,
		Stops:   true,
		Kills:   true,
		New: func(decode func(any) error) (Fault, error) {
			f := kill{}
			return f, decode(&f)
		},
	}
}

type killable interface {
	Node
	Killer
}

// Inject kills all targets at once.
func (kill) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	targets, err := capable[killable](s.On, CanKill)
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	var dead victims
	receipt, err := onEach(targets, func(n killable) (history.Receipt, error) { return dead.kill(ctx, n) })
	heal := func(ctx context.Context) (history.Receipt, error) { return dead.revive(ctx, s) }
	return heal, receipt, err
}

// victims are the targets that were sent a SIGKILL.
type victims struct {
	mu    sync.Mutex
	nodes []killable
}

// kill kills one target and sees that its process is gone. A target that had none before was not killed by us, and is
// not ours to start again.
func (v *victims) kill(ctx context.Context, n killable) (history.Receipt, error) {
	before, err := n.Inspect(ctx)
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	}
	if before.Gone() {
		return seen(history.NotInstalled, before.Time, n.Name()+" had no process to kill"), nil
	}
	v.mu.Lock()
	v.nodes = append(v.nodes, n)
	v.mu.Unlock()
	_, failed := n.Kill(ctx)
	after, err := n.Inspect(ctx)
	evidence := fmt.Sprintf("%s: before %s, after %s", n.Name(), before, after)
	switch {
	case failed != nil:
		return history.Receipt{Time: after.Time, Evidence: evidence}, failed
	case err != nil:
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	case !after.Gone() && after.PID == before.PID:
		return seen(history.NotInstalled, after.Time, evidence+": it is still there"), nil
	case !after.Gone():
		return seen(history.Indeterminate, after.Time, evidence+": another process took its place by itself"), nil
	}
	return seen(history.Installed, after.Time, evidence), nil
}

// revive starts every victim again that can be, and sees that it serves.
func (v *victims) revive(ctx context.Context, s Scope) (history.Receipt, error) {
	v.mu.Lock()
	nodes := v.nodes
	v.mu.Unlock()
	if len(nodes) == 0 {
		return nothingToHeal(ctx)
	}
	return onEach(nodes, func(n killable) (history.Receipt, error) { return revived(ctx, n, s) })
}
