package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/internal/agent"
)

// keeper is how a provider keeps its servers between runs, with their network and the agent.
type keeper interface {
	// vacate ends a node that is no server and removes what the run made for it.
	vacate(ctx context.Context, n *Node) error
	// renew makes another node in the place of one that was vacated: same name, same address, not yet started.
	renew(ctx context.Context, index int, spec Spec) (*Node, error)
	// logs are the files that the output of the nodes goes to.
	logs() *logbook
}

// errNotKept says that a cluster ends with its run.
var errNotKept = errors.New("the nodes of this provider end with their run")

// Vacate ends every node but the servers. What they had is gone with them; the servers run on, with their network and
// the agent, until Close.
func (c *Cluster) Vacate(ctx context.Context) error {
	if c.keeper == nil {
		return errNotKept
	}
	var g errgroup.Group
	for _, n := range c.Nodes {
		if n.Role() == Server {
			continue
		}
		g.Go(func() error {
			if err := c.keeper.vacate(ctx, n); err != nil {
				return fmt.Errorf("end %s: %w", n.Name(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Renew furnishes a cluster that was vacated for another run: each node but the servers is made anew, with its name and
// its address and without a process, and what the servers say from now on goes to logDir.
func (c *Cluster) Renew(ctx context.Context, logDir string) error {
	if c.keeper == nil {
		return errNotKept
	}
	if err := c.keeper.logs().turn(logDir); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, n := range slices.Clone(c.Nodes) {
		if n.Role() == Server {
			continue
		}
		g.Go(func() error {
			made, err := c.keeper.renew(ctx, i, n.spec)
			if err != nil {
				return fmt.Errorf("make %s anew: %w", n.Name(), err)
			}
			c.changed.Lock()
			defer c.changed.Unlock()
			c.Nodes[i] = made
			return nil
		})
	}
	return g.Wait()
}

// Like tells whether a node of that description would be the same as this one.
func (n *Node) Like(s Spec) bool {
	own := n.spec
	return own.Role == s.Role && own.Image == s.Image && own.Limits == s.Limits && own.Stdio == s.Stdio &&
		own.RestartDelay == s.RestartDelay && slices.Equal(own.Ports, s.Ports) && slices.Equal(own.Env, s.Env) &&
		slices.Equal(own.Preparations, s.Preparations) && slices.Equal(own.Command(n.place), s.Command(n.place))
}

// Starts is how many processes the node has had.
func (n *Node) Starts() int { return int(n.starts.Load()) }

// Standing lists what was asked for on the node and not taken back, by the supervisor's own books.
func (n *Node) Standing() []string {
	var out []string
	if p := n.Pauses(); p > 0 {
		out = append(out, fmt.Sprintf("pause (%d times)", p))
	}
	if f := n.Freezes(); f > 0 {
		out = append(out, fmt.Sprintf("freeze (%d times)", f))
	}
	n.linking.Lock()
	defer n.linking.Unlock()
	for _, s := range n.orders {
		out = append(out, s.order.Do+" "+s.order.Key)
	}
	return out
}

// Watched tells whether an agent is at hand that can look at the node from outside.
func (n *Node) Watched(ctx context.Context) bool {
	_, err := n.reach(ctx)
	return err == nil
}

// Around is what stands around a node.
type Around = agent.Around

// Around has the agent look at what stands around the node: in its own books, and in the node's network namespace.
func (n *Node) Around(ctx context.Context) (Around, error) {
	if !n.Running() {
		return Around{}, fmt.Errorf("%s: %w", n.Name(), agent.ErrNoProcess)
	}
	var out Around
	err := n.order(ctx, agent.Order{Do: agent.DoAround}, &out)
	return out, err
}
