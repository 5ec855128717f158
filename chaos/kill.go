package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockquake/lockquake/history"
)

// kill ends a process with SIGKILL: a crash. What it had handed to the kernel is safe; this is no loss of power.
type kill struct {
	// Data is what becomes of the data directory of a server: "keep" (the default), or "lose", as with a disk that is gone as
	// well.
	Data dataFate `yaml:"data" json:"data,omitempty"`
}

func killKind() Kind {
	return Kind{
		Name: "kill",
		Doc: "Ends the target with SIGKILL; receipt: the process is gone, and what its data directory held. With `data: lose` that is emptied. " +
			"The heal starts a server again and waits until it " +
			"serves, or runs while other faults stand; a client stays dead.",
		Needs:   []Capability{CanInspect, CanKill},
		Try:     []string{"", "data: lose"},
		Lasting: true,
		Stops:   true,
		Kills:   true,
		New: func(decode func(any) error) (Fault, error) {
			f := kill{Data: keepData}
			if err := decode(&f); err != nil {
				return nil, err
			}
			return f, f.Data.check("kill")
		},
	}
}

type killable interface {
	Node
	Killer
}

// Needs lists the capabilities that it needs of its targets.
func (f kill) Needs() []Capability { return f.Data.needs(killKind()) }

// Inject kills all targets at once.
func (f kill) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	targets, err := capable[killable](s.On, CanKill)
	if err == nil {
		err = f.Data.possible(s.On)
	}
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	dead := victims{fate: f.Data}
	receipt, err := onEach(targets, func(n killable) (history.Receipt, error) { return dead.kill(ctx, n) })
	heal := func(ctx context.Context) (history.Receipt, error) { return dead.revive(ctx, s) }
	return heal, receipt, err
}

// victims are the targets that were sent a SIGKILL.
type victims struct {
	fate  dataFate
	mu    sync.Mutex
	nodes []victim
}

// victim is one target and what was seen of its data.
type victim struct {
	killable
	*ledger
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
	book, err := openLedger(ctx, n, v.fate)
	if err != nil {
		return history.Receipt{}, err
	}
	v.mu.Lock()
	v.nodes = append(v.nodes, victim{n, book})
	v.mu.Unlock()
	_, failed := n.Kill(ctx)
	after, err := n.Inspect(ctx)
	evidence := fmt.Sprintf("%s: before %s, after %s", n.Name(), before, after)
	var alive history.Receipt
	switch {
	case failed != nil:
		alive = history.Receipt{Time: after.Time, Evidence: evidence}
	case err != nil:
		failed = fmt.Errorf("its state could not be read: %w", err)
	case !after.Gone() && after.PID == before.PID:
		alive = seen(history.NotInstalled, after.Time, evidence+": it is still there")
	case !after.Gone():
		alive = seen(history.Indeterminate, after.Time, evidence+": another process took its place by itself")
	default:
		return book.settle(ctx, v.fate, seen(history.Installed, after.Time, evidence))
	}
	return alive, errors.Join(failed, book.release(ctx))
}

// revive starts every victim again that can be, and sees that it serves.
func (v *victims) revive(ctx context.Context, s Scope) (history.Receipt, error) {
	v.mu.Lock()
	nodes := v.nodes
	v.mu.Unlock()
	if len(nodes) == 0 {
		return nothingToHeal(ctx)
	}
	return onEach(nodes, func(n victim) (history.Receipt, error) { return n.revived(ctx, s) })
}

// revived starts a victim again and looks into its data directory once more.
func (v victim) revived(ctx context.Context, s Scope) (history.Receipt, error) {
	r, err := revived(ctx, v.killable, s)
	if err == nil {
		r = v.again(ctx, v.killable, r)
	}
	return r, err
}

// of finds the victim that a target became.
func (v *victims) of(n killable) victim {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, one := range v.nodes {
		if one.Name() == n.Name() {
			return one
		}
	}
	return victim{n, &ledger{}}
}
