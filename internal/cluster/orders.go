package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
)

// Orders sends the agent orders about one node, and keeps those that outlive the node's process.
//
// A fault concerns a node, but the agent acts on a process. Example: a partition of redis-2 consists of packet filter
// rules in the network namespace of its container. A kill and a restart give redis-2 another process in another
// namespace, without rules. So the order is given again for the new process, and the node stays cut off until the
// partition is healed.
type Orders struct {
	process *Process

	mu       sync.Mutex // guards standing, and is held while orders are given
	standing []*standingOrder
}

// standingOrder is an order on the node's links or clock that outlives its processes: it is given again for each new
// one.
type standingOrder struct {
	order agent.Order
	given bool // sent to the agent, so that it must be undone
}

// reach returns the agent's access to the node's process.
func (o *Orders) reach(ctx context.Context) (throughAgent, error) {
	s, err := o.process.driver.signaller(ctx)
	if err != nil {
		return throughAgent{}, err
	}
	if a, ok := s.(throughAgent); ok {
		return a, nil
	}
	reason := "its provider has none"
	if w, ok := s.(interface{ agentless() error }); ok && w.agentless() != nil {
		reason = w.agentless().Error()
	}
	return throughAgent{}, chaos.Unavailable{What: "the agent", Reason: o.process.Name() + " is not reached by one: " +
		reason}
}

// order sends an order about the node's process to its agent, or returns why there is no agent.
func (o *Orders) order(ctx context.Context, what agent.Order, result any) error {
	a, err := o.reach(ctx)
	if err != nil {
		return err
	}
	what.Process = a.process
	if err := a.agent.Order(ctx, what, result); err != nil {
		return fmt.Errorf("%s of %s: %w", what.Do, o.process.Name(), err)
	}
	return nil
}

// runTime converts a time of the agent into the run's.
func (o *Orders) runTime(ctx context.Context, t int64) int64 {
	if a, err := o.reach(ctx); err == nil {
		return a.agent.RunTime(t)
	}
	return t
}

// undo makes the agent undo the order with the key.
func (o *Orders) undo(ctx context.Context, key string, result any) error {
	a, err := o.reach(ctx)
	if err != nil {
		return err
	}
	if err := a.agent.Undo(ctx, key, result); err != nil {
		return fmt.Errorf("undo of %s: %w", o.process.Name(), err)
	}
	return nil
}

// apply gives an order that is active until takeBack: now, if the node runs, and again at each start.
func (o *Orders) apply(ctx context.Context, what agent.Order, result any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &standingOrder{order: what}
	o.standing = append(o.standing, s)
	if !o.process.Running() {
		return nil
	}
	if _, err := o.reach(ctx); err != nil {
		return err
	}
	s.given = true // set before its first effect
	ctx, done := clock.Act(ctx)
	defer done()
	return o.order(ctx, what, result)
}

// amend changes the arguments of a standing order for later processes.
func (o *Orders) amend(key string, args any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.standing {
		if s.order.Key == key {
			s.order.Args = args
		}
	}
}

// reapply gives the standing orders for the process that was just started.
func (o *Orders) reapply(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	var errs []error
	for _, s := range o.standing {
		s.given = true
		errs = append(errs, o.order(ctx, s.order, nil))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s runs, but the active faults on its links, clock and disk were not restored: %w",
			o.process.Name(), err)
	}
	return nil
}

// takeBack ends a standing order, and makes the agent undo it.
func (o *Orders) takeBack(ctx context.Context, key string, result any) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.standing, func(s *standingOrder) bool { return s.order.Key == key })
	if i < 0 {
		return nil
	}
	s := o.standing[i]
	o.standing = slices.Delete(o.standing, i, i+1)
	if !s.given {
		return nil
	}
	ctx, done := clock.Act(ctx)
	defer done()
	return o.undo(ctx, key, result)
}

// list returns the standing orders.
func (o *Orders) list() []standingOrder {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]standingOrder, len(o.standing))
	for i, s := range o.standing {
		out[i] = *s
	}
	return out
}

// key returns the node's key of an order, from one that is unique in the run: nodes can share a fault.
func (o *Orders) key(key string) string { return key + "/" + o.process.Name() }

// Watched reports whether an agent can inspect the node from outside.
func (o *Orders) Watched(ctx context.Context) bool {
	_, err := o.reach(ctx)
	return err == nil
}

// AgentEnded reports whether the node's agent has ended.
func (o *Orders) AgentEnded(ctx context.Context) bool {
	a, err := o.reach(ctx)
	if err != nil {
		return false
	}
	select {
	case <-a.agent.Ended():
		return true
	default:
		return false
	}
}

// Around lists what acts on a node's links, and the standing orders of the whole run at the node's agent.
type Around struct {
	links.Around
	Standing []string // keys of the orders that the agent has not undone, of all nodes
}

// Around asks the agent for its standing orders, and for what acts in the node's network namespace.
func (o *Orders) Around(ctx context.Context) (out Around, err error) {
	if !o.process.Running() {
		return out, fmt.Errorf("%s: %w", o.process.Name(), proc.ErrNoProcess)
	}
	a, err := o.reach(ctx)
	if err != nil {
		return out, err
	}
	if out.Standing, err = a.agent.Standing(ctx); err != nil {
		return out, fmt.Errorf("active faults on %s: %w", o.process.Name(), err)
	}
	return out, o.order(ctx, agent.Order{Do: links.DoAround}, &out.Around)
}
