package cluster

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/shell"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

var _ shell.Commander = (*Commands)(nil)

// Commands runs commands of the user's on a node.
type Commands struct {
	*core
	node *Node
}

// Inspect returns the state of the node's process.
func (co *Commands) Inspect(ctx context.Context) (chaos.ProcessState, error) {
	return co.node.Signals.Inspect(ctx)
}

// Exec has the agent run a command, and hold what undoes it.
func (co *Commands) Exec(ctx context.Context, key string, a shell.ExecArgs) (shell.Ran, error) {
	ctx, done := clock.Act(ctx)
	defer done()
	return co.run(ctx, agent.Order{Do: shell.DoExec, Key: co.node.Orders.key(key)}, a)
}

// Prove has the agent run a command.
func (co *Commands) Prove(ctx context.Context, a shell.ExecArgs) (shell.Ran, error) {
	return co.run(ctx, agent.Order{Do: shell.DoProve}, a)
}

// UndoExec has the agent run the undo. What the process that the command was about has taken with it, its successor
// may have again: of a file in the node's container.
func (co *Commands) UndoExec(ctx context.Context, key string, a shell.ExecArgs) (shell.Ran, error) {
	ctx, done := clock.Act(ctx)
	defer done()
	var ran shell.Ran
	err := co.node.Orders.undo(ctx, co.node.Orders.key(key), &ran)
	if err != nil || !ran.Gone || !co.node.Process.Running() {
		return co.seen(ctx, ran), err
	}
	a.Run = a.Undo
	return co.run(ctx, agent.Order{Do: shell.DoProve}, a)
}

func (co *Commands) run(ctx context.Context, o agent.Order, a shell.ExecArgs) (shell.Ran, error) {
	var ran shell.Ran
	a.Env, a.Dir = co.environment(), co.node.place.Dir
	o.Args = a
	err := co.node.Orders.order(ctx, o, &ran)
	if errors.Is(err, proc.ErrNoProcess) {
		ran.Gone, err = true, nil
	}
	return co.seen(ctx, ran), err
}

// seen dates a result, and keeps the node's password out of it.
func (co *Commands) seen(ctx context.Context, r shell.Ran) shell.Ran {
	if r.Time = co.node.Orders.runTime(ctx, r.Time); r.Time == 0 {
		r.Time = clock.Now()
	}
	if secret := co.node.login.Password; secret != "" {
		r.Output = strings.ReplaceAll(r.Output, secret, "(password)")
	}
	return r
}

// environment tells commands where the node is, and how its server is asked.
func (co *Commands) environment() []string {
	n := co.node
	env := []string{"LOCKQUAKE_NODE=" + n.Name(), "LOCKQUAKE_DIR=" + n.place.Dir, "LOCKQUAKE_HOST=" + n.Host()}
	if n.login.Password != "" {
		env = append(env, "LOCKQUAKE_PASSWORD="+n.login.Password)
	}
	for _, p := range n.spec.Ports {
		if _, port, err := net.SplitHostPort(n.Address(p.Name)); err == nil {
			env = append(env, "LOCKQUAKE_PORT_"+strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))+"="+port)
		}
	}
	return env
}
