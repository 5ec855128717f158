package cluster

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/lockquake/lockquake/chaos/shell"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

var _ shell.Commander = (*Commands)(nil)

// Commands runs the user's commands on a node.
type Commands struct {
	part
	login *node.Login
}

// Exec makes the agent run a command and keep its undo.
func (co *Commands) Exec(ctx context.Context, key string, a shell.ExecArgs) (shell.Ran, error) {
	ctx, done := clock.Act(ctx)
	defer done()
	return co.run(ctx, agent.Order{Do: shell.DoExec, Key: co.orders.key(key)}, a)
}

// Prove makes the agent run a command.
func (co *Commands) Prove(ctx context.Context, a shell.ExecArgs) (shell.Ran, error) {
	return co.run(ctx, agent.Order{Do: shell.DoProve}, a)
}

// UndoExec makes the agent run the undo. If the command's process has ended, its successor may still have the effect,
// such as a file in the node's container.
func (co *Commands) UndoExec(ctx context.Context, key string, a shell.ExecArgs) (shell.Ran, error) {
	ctx, done := clock.Act(ctx)
	defer done()
	var ran shell.Ran
	err := co.orders.undo(ctx, co.orders.key(key), &ran)
	if err != nil || !ran.Gone || !co.process.Running() {
		return co.seen(ctx, ran), err
	}
	a.Run = a.Undo
	return co.run(ctx, agent.Order{Do: shell.DoProve}, a)
}

func (co *Commands) run(ctx context.Context, o agent.Order, a shell.ExecArgs) (shell.Ran, error) {
	var ran shell.Ran
	a.Env, a.Dir = co.environment(), co.place.Dir
	o.Args = a
	err := co.orders.order(ctx, o, &ran)
	if errors.Is(err, proc.ErrNoProcess) {
		ran.Gone, err = true, nil
	}
	return co.seen(ctx, ran), err
}

// seen converts the time of a result, and removes the node's password from it.
func (co *Commands) seen(ctx context.Context, r shell.Ran) shell.Ran {
	if r.Time = co.orders.runTime(ctx, r.Time); r.Time == 0 {
		r.Time = clock.Now()
	}
	if secret := co.login.Password; secret != "" {
		r.Output = strings.ReplaceAll(r.Output, secret, "(password)")
	}
	return r
}

// environment returns the variables with the node's place, and how to reach its server.
func (co *Commands) environment() []string {
	env := []string{
		"LOCKQUAKE_NODE=" + co.Name(), "LOCKQUAKE_DIR=" + co.place.Dir, "LOCKQUAKE_HOST=" + co.place.Host(co.Name()),
	}
	if co.login.Password != "" {
		env = append(env, "LOCKQUAKE_PASSWORD="+co.login.Password)
	}
	for _, p := range co.spec.Ports {
		if _, port, err := net.SplitHostPort(co.place.Address(co.Name(), p.Name)); err == nil {
			env = append(env, "LOCKQUAKE_PORT_"+strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))+"="+port)
		}
	}
	return env
}
