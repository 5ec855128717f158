package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// Node is one process of a run, whatever it runs in. What can be done to it is up to its parts. All methods may be
// called from several goroutines.
type Node struct {
	core
	login node.Login // what its program asks for

	Process  Process
	Orders   Orders
	Signals  Signals
	Links    Links
	Clock    Clock
	Disk     Disk
	Commands Commands
	CPULimit CPULimit
}

// newNode makes a node, which has no driver yet.
func newNode(spec node.Spec, place node.Place) *Node {
	n := &Node{core: core{spec: spec, place: place}}
	c := &n.core
	n.Process = Process{core: c, renew: n.renew}
	n.Orders = Orders{process: &n.Process}
	n.Signals = Signals{core: c, process: &n.Process, orders: &n.Orders, freezing: freezeOrder{orders: &n.Orders}}
	p := part{core: c, process: &n.Process, orders: &n.Orders, signals: &n.Signals}
	n.Links, n.Clock, n.Disk = Links{part: p}, Clock{part: p}, Disk{part: p}
	n.Commands, n.CPULimit = Commands{part: p, login: &n.login}, CPULimit{p}
	n.all = []any{n, &n.Process, &n.Signals, &n.Links, &n.Clock, &n.Disk, &n.Commands, &n.CPULimit}
	return n
}

// renew has another process take the last one's place. The pauses and freezes of that one went with it; the orders that
// outlast it are given again.
func (n *Node) renew(ctx context.Context, replace func()) error {
	n.Signals.forget()
	defer n.Clock.changed()()
	replace()
	return n.Orders.reapply(ctx)
}

// Role returns what the node is for.
func (n *Node) Role() node.Role { return n.spec.Role }

// Address returns "host:port" of a named port as other nodes of the run see it.
func (n *Node) Address(port string) string { return n.place.Address(n.spec.Name, port) }

// Login is what the node's program asks of its clients.
func (n *Node) Login() node.Login { return n.login }

// Dial connects to a named port of the node from the supervisor.
func (n *Node) Dial(ctx context.Context, port string) (net.Conn, error) {
	address := n.Address(port)
	if address == "" {
		return nil, fmt.Errorf("%s has no port %q", n.Name(), port)
	}
	return n.driver.dial(ctx, port, address)
}

// Foreign tells whether somebody else runs the node.
func (n *Node) Foreign() bool { return external(n.driver) }

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
		{"nature", own.Stdio == s.Stdio && own.Restartable == s.Restartable && own.StopSignal == s.StopSignal &&
			own.Go == s.Go &&
			(own.Secret == nil) == (s.Secret == nil) && slices.Equal(own.SyncThreads, s.SyncThreads)},
	} {
		if !of.same {
			return of.what
		}
	}
	return ""
}

// Standing lists the supervisor's pauses, freezes and orders on the node that were not undone.
func (n *Node) Standing() []string {
	var out []string
	if p := n.Signals.Pauses(); p > 0 {
		out = append(out, fmt.Sprintf("pause (%d times)", p))
	}
	if f := n.Signals.Freezes(); f > 0 {
		out = append(out, fmt.Sprintf("freeze (%d times)", f))
	}
	for _, s := range n.Orders.list() {
		out = append(out, s.order.Do+" "+s.order.Key)
	}
	return out
}

// Handles returns the nodes as a service asks them.
func Handles(nodes []*Node) []node.Handle {
	out := make([]node.Handle, len(nodes))
	for i, n := range nodes {
		out[i] = n
	}
	return out
}

// alikeFrom is how far in a second nodes start that are to be alike: the kernel tells the start of a process in
// hundredths of a second, rounded down.
const alikeFrom = 100 * time.Millisecond

// StartAll starts all nodes side by side. Those that are to be alike start when a second of the wall clock has just
// begun: a start in whole seconds is then the same for all of them.
func StartAll(ctx context.Context, nodes []*Node) error {
	if slices.ContainsFunc(nodes, func(n *Node) bool { return n.spec.Alike }) {
		begun := clock.Time(clock.Now()).Truncate(time.Second)
		if err := clock.Sleep(ctx, time.Until(begun.Add(time.Second+alikeFrom))); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error { return n.Process.Start(ctx) })
	}
	return g.Wait()
}
