package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/internal/node"
)

// keeper is how a provider keeps its servers between runs, with their network and the agent.
type keeper interface {
	// vacate ends a node that is no server and removes what the run made for it.
	vacate(ctx context.Context, n *Node) error
	// renew makes the nodes of the specs from that number on, not yet started, and puts them behind the servers in c.Nodes. Those that
	// were vacated are still there. No server is being asked anything meanwhile: each sees where the others are placed.
	renew(ctx context.Context, c *Cluster, specs []node.Spec, from int) error
	// nodeLogs are the files that the output of the nodes goes to.
	nodeLogs() *nodeLogs
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
		if n.Role() == node.Server {
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

// Renew makes the nodes of another run in a cluster that was vacated. The servers stay, and come first in the specs. Every other node is
// new: it has its own place, and no process yet. The servers log to logDir from now on.
func (c *Cluster) Renew(ctx context.Context, specs []node.Spec, logDir string) error {
	if c.keeper == nil {
		return errNotKept
	}
	if err := checkSpecs(specs); err != nil {
		return err
	}
	servers := len(c.ByRole(node.Server))
	for i, s := range specs {
		if (s.Role == node.Server) != (i < servers) {
			return fmt.Errorf("%s is number %d of the nodes, and the %d servers come first", s.Name, i+1, servers)
		}
	}
	if err := c.keeper.nodeLogs().switchTo(logDir); err != nil {
		return err
	}
	for _, n := range c.Nodes[servers:] {
		n.place.Remove(n.Name())
		for _, key := range []string{addressKey(n.Name()), programKey(n.Name()), limitsKey(n.Name())} {
			delete(c.Describe, key)
		}
	}
	return c.keeper.renew(ctx, c, specs, servers)
}

// replaceNodes replaces the nodes from that number on.
func (c *Cluster) replaceNodes(from int, nodes []*Node) {
	c.changed.Lock()
	defer c.changed.Unlock()
	c.Nodes = append(c.Nodes[:from:from], nodes...)
}

// Differs says in what a node of that spec would differ from this one, or "".
func (n *Node) Differs(s node.Spec) string {
	own := n.spec
	for _, of := range []struct {
		what string
		same bool
	}{
		{"role", own.Role == s.Role},
		{"image", own.Image == s.Image},
		{"limits", own.Limits == s.Limits},
		{"preparations", slices.Equal(own.Preparations, s.Preparations)},
		{"ports", slices.Equal(own.Ports, s.Ports)},
		{"environment", slices.Equal(own.Env, s.Env)},
		{"command", slices.Equal(own.Command(n.place), s.Command(n.place))},
		{"restart delay", own.RestartDelay == s.RestartDelay},
		{"nature", own.Stdio == s.Stdio && own.Restartable == s.Restartable && own.StopSignal == s.StopSignal && own.Go == s.Go &&
			(own.Secret == nil) == (s.Secret == nil) && slices.Equal(own.SyncThreads, s.SyncThreads)},
	} {
		if !of.same {
			return of.what
		}
	}
	return ""
}

// Starts is how many processes the node has had.
func (n *Node) Starts() int { return int(n.starts.Load()) }

// Standing lists the supervisor's pauses, freezes and orders on the node that were not undone.
func (n *Node) Standing() []string {
	var out []string
	if p := n.Pauses(); p > 0 {
		out = append(out, fmt.Sprintf("pause (%d times)", p))
	}
	if f := n.Freezes(); f > 0 {
		out = append(out, fmt.Sprintf("freeze (%d times)", f))
	}
	n.orders.mu.Lock()
	defer n.orders.mu.Unlock()
	for _, s := range n.orders.standing {
		out = append(out, s.order.Do+" "+s.order.Key)
	}
	return out
}
