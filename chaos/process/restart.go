package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// restart is a crash and an immediate return, as when a supervisor restarts a server after an out-of-memory kill.
type restart struct {
	// Delay is how long the node stays away; default 0, at most maxDelay.
	Delay time.Duration `yaml:"delay"`
	// How is byKill (the default) or byStop, with which the server shuts down and may save its state.
	How string `yaml:"how"`
	// Data is what is done to the data directory meanwhile, as for kill.
	Data dataOption `yaml:"data"`
}

// maxDelay is the time that an injection has left for the delay, besides the time for the server to serve again.
const maxDelay = chaos.Timeout - chaos.ReviveTimeout

func restartKind() chaos.Kind {
	return chaos.Kind{
		Name: "restart", Place: 6,
		Doc: "Ends a server with SIGKILL (with `how: stop` gracefully, like `stop`), waits for `delay` (default 0s, " +
			"at most 5s) and starts it again. Receipt: the process was gone, then the node served again, and the " +
			"contents of its data directory before, meanwhile and after. `data: lose` empties the directory, `save` " +
			"saves a copy, and `restore` restores that copy. A restart delay of the node itself is added.",
		Needs: []chaos.Capability{chaos.CanInspect, CanKill, chaos.CanStart},
		Try:   []string{"", "how: stop"},
		Kills: true,
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := restart{Data: keepData, How: byKill}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.Delay < 0 || f.Delay > maxDelay {
				return nil, fmt.Errorf("delay of restart is %s: want 0s to %s, because the server must be back within %s; "+
					"for longer, use kill with for", f.Delay, maxDelay, chaos.Timeout)
			}
			if f.How != byKill && f.How != byStop {
				return nil, fmt.Errorf("how of restart is %q: want %s or %s", f.How, byKill, byStop)
			}
			return f, f.Data.check("restart")
		},
	}
}

// Damages reports whether the data is to be changed.
func (f restart) Damages() bool { return f.Data.changes() }

// Forgets reports whether the data is lost.
func (f restart) Forgets() bool { return f.Data == loseData }

// Needs returns the capabilities that it needs of its targets.
func (f restart) Needs() []chaos.Capability {
	needs := f.Data.needs(restartKind())
	if f.How == byStop {
		needs = append(slices.Clone(needs), CanStop)
	}
	return needs
}

// Words describe how it ends the process.
func (f restart) Words() (began, ended string) {
	if f.How == byStop {
		return "asked to stop", "serves again"
	}
	return "killed (SIGKILL)", "serves again"
}

// Inject ends all targets concurrently, and returns when all of them serve again.
func (f restart) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	targets, err := chaos.Capable[killable](s.On, CanKill)
	if err == nil && f.How == byStop {
		_, err = chaos.Capable[stoppable](s.On, CanStop)
	}
	if err == nil {
		err = errors.Join(restartable(s.On), f.Data.possible(s.On))
	}
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	dead := endedTargets{data: f.Data}
	heal := func(ctx context.Context) (history.Receipt, error) { return dead.revive(ctx, s) }
	receipt, err := chaos.OnEach(targets, func(n killable) (history.Receipt, error) {
		gone, err := f.end(ctx, &dead, n)
		if err != nil || gone.Status != history.Installed {
			return gone, err
		}
		if err := clock.Sleep(ctx, f.Delay); err != nil {
			return gone, fmt.Errorf("waiting for the delay: %w", err)
		}
		back, err := dead.of(n).revived(clock.WithoutActs(ctx), s) // the fault took effect when the process ended
		back.Evidence = gone.Evidence + "; " + back.Evidence
		back.Time, back.Sent = gone.Time, gone.Sent
		return back, err
	})
	return heal, receipt, err
}

// end ends one target.
func (f restart) end(ctx context.Context, dead *endedTargets, n killable) (history.Receipt, error) {
	if f.How == byStop {
		able, _ := chaos.As[stoppable](n) // Inject has checked that it is one
		return dead.stop(ctx, able)
	}
	return dead.kill(ctx, n)
}

// restartable rejects targets that could be killed but not restarted.
func restartable(on []chaos.Node) error {
	for _, n := range on {
		if s, ok := chaos.As[chaos.Starter](n); !ok || !s.Restartable() {
			return chaos.Unavailable{What: string(chaos.CanStart), Reason: n.Name() +
				" cannot be started a second time; use kill"}
		}
	}
	return nil
}
