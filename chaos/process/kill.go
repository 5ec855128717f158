package process

import (
	"context"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// kill ends a process with SIGKILL: a crash. Data already passed to the kernel is safe; this is no power loss.
type kill struct {
	// Data is what is done to the data directory of a server: "keep" (the default); "lose", as with a lost disk;
	// "save", which makes a copy; or "restore", which replaces the directory with the copy, as from a backup.
	Data dataOption `yaml:"data"`
}

func killKind() chaos.Kind {
	return chaos.Kind{
		Name: "kill", Place: 4,
		Doc: "Ends the target with SIGKILL. Receipt: the process is gone, and the contents of its data directory. " +
			"`data: lose` empties the directory, `data: save` saves a copy, and `data: restore` restores that copy. " +
			"The heal starts a server again and waits until it serves, or only until it runs while other faults are " +
			"active; a client stays dead.",
		Needs:   []chaos.Capability{chaos.CanInspect, CanKill},
		Try:     []string{"", "data: lose"},
		Lasting: true,
		Stops:   true,
		Kills:   true,
		Began:   "killed (SIGKILL)", Ended: "up again",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := kill{Data: keepData}
			if err := decode(&f); err != nil {
				return nil, err
			}
			return f, f.Data.check("kill")
		},
	}
}

type killable interface {
	chaos.Node
	Killer
}

// Damages reports whether the data is to be changed.
func (f kill) Damages() bool { return f.Data.changes() }

// Forgets reports whether the data is lost.
func (f kill) Forgets() bool { return f.Data == loseData }

// Needs returns the capabilities that it needs of its targets.
func (f kill) Needs() []chaos.Capability { return f.Data.needs(killKind()) }

// Inject kills all targets concurrently.
func (f kill) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	targets, err := chaos.Capable[killable](s.On, CanKill)
	if err == nil {
		err = f.Data.possible(s.On)
	}
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	dead := endedTargets{data: f.Data}
	receipt, err := chaos.OnEach(targets, func(n killable) (history.Receipt, error) { return dead.kill(ctx, n) })
	heal := func(ctx context.Context) (history.Receipt, error) { return dead.revive(ctx, s) }
	return heal, receipt, err
}
