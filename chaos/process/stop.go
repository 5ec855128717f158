package process

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// gracefulStop asks a server to shut down, as an operator or a supervisor does: it may save its state before it ends.
// kill is the crash.
type gracefulStop struct{}

// How a restart ends its targets.
const (
	byKill = "kill" // SIGKILL
	byStop = "stop" // as the fault stop does
)

// stopPatience is how long a server may take to shut down: etcd gives its clients 7 s to leave.
const stopPatience = 10 * time.Second

func stopKind() chaos.Kind {
	return chaos.Kind{
		Name: "stop", Place: 5,
		Doc: "Stops a server gracefully (SIGTERM; Postgres: SIGINT, its fast shutdown). Receipt: it exited within " +
			"10s without a SIGKILL, its exit status, and the contents of its data directory. The heal starts it " +
			"again and waits until it serves, or only until it runs while other faults are active.",
		Needs:   []chaos.Capability{chaos.CanInspect, CanStop, chaos.CanStart},
		Lasting: true,
		Stops:   true,
		Kills:   true,
		Began:   "asked to stop", Ended: "up again",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := gracefulStop{}
			return f, decode(&f)
		},
	}
}

// Inject stops all targets concurrently.
func (gracefulStop) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	targets, err := chaos.Capable[stoppable](s.On, CanStop)
	if err == nil {
		err = restartable(s.On)
	}
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	dead := endedTargets{data: keepData}
	receipt, err := chaos.OnEach(targets, func(n stoppable) (history.Receipt, error) { return dead.stop(ctx, n) })
	heal := func(ctx context.Context) (history.Receipt, error) { return dead.revive(ctx, s) }
	return heal, receipt, err
}

type stoppable interface {
	chaos.Node
	Stopper
}

// stop shuts down one target and checks that it ended by itself.
func (v *endedTargets) stop(ctx context.Context, n stoppable) (history.Receipt, error) {
	return v.end(ctx, n, func(ctx context.Context) (endResult, error) {
		ctx, cancel := context.WithTimeout(ctx, stopPatience)
		defer cancel()
		e, err := n.Stop(ctx)
		out := endResult{sent: e.Sent}
		switch {
		case err != nil:
			out.mayYetEnd = true
		case !e.Gone:
			out.status, out.text, out.mayYetEnd = history.NotInstalled,
				fmt.Sprintf("asked by SIG%s, it has not ended within %s", e.Signal, stopPatience), true
		case e.Killed:
			out.status, out.text = history.NotInstalled, fmt.Sprintf("asked by SIG%s, it was ended by a SIGKILL (%s)",
				e.Signal, e.How)
		case e.How == "":
			out.status, out.text = history.Indeterminate,
				fmt.Sprintf("asked by SIG%s, it ended, but its exit status is unknown", e.Signal)
		default:
			out.status, out.text = history.Installed, fmt.Sprintf("asked by SIG%s, it ended by itself: %s", e.Signal,
				e.How)
		}
		return out, err
	})
}
