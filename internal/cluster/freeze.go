package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

var _ chaos.Freezer = (*Node)(nil)

// freezable is a driver whose node can be frozen, with its descendants.
type freezable interface {
	freeze(ctx context.Context) error
	thaw(ctx context.Context) error
	// frozen is what is known where no agent can ask the kernel.
	frozen(ctx context.Context) (chaos.FrozenSeen, error)
}

// Freeze halts the node's process and its descendants by the kernel's freezer. Freezes of one process are counted: each is undone
// by one Thaw, also one that did not come to its end.
func (n *Node) Freeze(ctx context.Context) error {
	n.pausing.Lock()
	defer n.pausing.Unlock()
	if !n.Running() {
		return fmt.Errorf("freeze %s: %w", n.Name(), agent.ErrNoProcess)
	}
	f, ok := n.driver.(freezable)
	if !ok {
		return chaos.Unavailable{What: string(chaos.CanFreeze), Reason: n.Name() + " is not ours to freeze"}
	}
	if n.freezes.Add(1) > 1 {
		return nil
	}
	return f.freeze(ctx)
}

// Thaw undoes one Freeze. When none is left the process goes on.
func (n *Node) Thaw(ctx context.Context) error {
	n.pausing.Lock()
	defer n.pausing.Unlock()
	if n.freezes.Load() == 0 || n.freezes.Add(-1) > 0 {
		return nil
	}
	return n.driver.(freezable).thaw(ctx)
}

// Freezes is how many freezes of the process have not been undone.
func (n *Node) Freezes() int { return int(n.freezes.Load()) }

// Frozen asks the kernel whether the process is frozen, by way of the agent.
func (n *Node) Frozen(ctx context.Context) (chaos.FrozenSeen, error) {
	if !n.Running() {
		return chaos.FrozenSeen{Gone: true, Time: clock.Now()}, nil
	}
	var out agent.Frozen
	err := n.order(ctx, agent.Order{Do: agent.DoFrozen}, &out)
	f, ok := n.driver.(freezable)
	switch {
	case ok && (out.Unseen != "" || errors.As(err, new(chaos.Unavailable))):
		return f.frozen(ctx)
	case errors.Is(err, agent.ErrNoProcess):
		return chaos.FrozenSeen{Gone: true, Time: clock.Now()}, nil
	}
	return chaos.FrozenSeen{
		Known: out.Unseen == "", Frozen: out.Frozen, Said: out.Said, Outside: out.Outside, Ran: out.Ran, Stop: out.Stop, Time: out.Time, Gone: out.Gone,
	}, err
}

// thawAll thaws a process however often it was frozen, so that it can die: one that was sent SIGKILL takes that before anything
// else.
func (n *Node) thawAll(ctx context.Context) {
	if n.freezes.Load() == 0 {
		return
	}
	n.pausing.Lock()
	defer n.pausing.Unlock()
	if n.freezes.Swap(0) > 0 {
		_ = n.driver.(freezable).thaw(ctx) // whoever kills it looks whether it dies
	}
}

// freezeKey makes the key under which the agent keeps what thaws a node.
func freezeKey(n *Node) string { return "freeze/" + n.Name() }

// guard has the agent do its part, and owe the undoing of it.
func (n *Node) guard(ctx context.Context, args agent.FreezeArgs) error {
	if _, err := n.reach(ctx); err != nil {
		return err
	}
	n.guarded = true // from before its first effect
	return n.order(ctx, agent.Order{Do: agent.DoFreeze, Key: freezeKey(n), Args: args}, nil)
}

// unguard has the agent thaw what it owes.
func (n *Node) unguard(ctx context.Context) error {
	if !n.guarded {
		return nil
	}
	n.guarded = false
	return n.undo(ctx, freezeKey(n), nil)
}

// freeze has the agent make a control group for the process, and freeze it.
func (p *process) freeze(ctx context.Context) error {
	return p.node.guard(ctx, agent.FreezeArgs{})
}

func (p *process) thaw(ctx context.Context) error { return p.node.unguard(ctx) }

func (p *process) frozen(context.Context) (chaos.FrozenSeen, error) {
	return chaos.FrozenSeen{Said: "there is no agent to ask", Time: clock.Now()}, nil
}

// freeze has the engine pause the container. The agent is told first, so that it thaws the container when the supervisor is gone;
// where it cannot, `clean` removes the container.
func (c *containerNode) freeze(ctx context.Context) error {
	if err := c.node.guard(ctx, agent.FreezeArgs{Engine: true}); err != nil {
		c.run.log.Warn("the agent could not thaw the container by itself", "node", c.spec.Name, "err", err)
	}
	if _, err := c.run.api.ContainerPause(ctx, c.box.GetContainerID(), client.ContainerPauseOptions{}); err != nil {
		return fmt.Errorf("have the engine pause %s: %w", c.spec.Name, err)
	}
	return nil
}

func (c *containerNode) thaw(ctx context.Context) error {
	_, err := c.run.api.ContainerUnpause(ctx, c.box.GetContainerID(), client.ContainerUnpauseOptions{})
	if err != nil {
		if paused, said := c.paused(ctx); said == nil && !paused {
			err = nil // it has ended, or was never paused
		} else {
			err = fmt.Errorf("have the engine let %s go on: %w", c.spec.Name, err)
		}
	}
	return errors.Join(err, c.node.unguard(ctx))
}

// paused asks the engine.
func (c *containerNode) paused(ctx context.Context) (bool, error) {
	info, err := c.run.api.ContainerInspect(ctx, c.box.GetContainerID(), client.ContainerInspectOptions{})
	if err != nil {
		return false, fmt.Errorf("inspect the container of %s: %w", c.spec.Name, err)
	}
	return info.Container.State.Paused, nil
}

func (c *containerNode) frozen(ctx context.Context) (chaos.FrozenSeen, error) {
	paused, err := c.paused(ctx)
	return chaos.FrozenSeen{Frozen: paused, Said: fmt.Sprintf("paused: %t, says the engine itself", paused), Time: clock.Now()}, err
}
