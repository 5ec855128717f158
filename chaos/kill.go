package chaos

import (
	"context"

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
