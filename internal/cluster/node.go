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

// Node is one process of a run, whatever it runs in. Its parts implement what can be done to it. All methods may be
// called from several goroutines.
type Node struct {
	core
	login node.Login // what its program requires of clients

	Process  Process
	Orders   Orders
	Signals  Signals
	Links    Links
	Clock    Clock
	Disk     Disk
	Commands Commands
	CPULimit CPULimit
}

// newNode makes a node without a driver.
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

// renew replaces the last process with a new one. Its pauses and freezes ended with it; standing orders are given
// again.
func (n *Node) renew(ctx context.Context, replace func()) error {
	n.Signals.forget()
	defer n.Clock.changed()()
	replace()
	return n.Orders.reapply(ctx)
}

// Role returns the node's role.
func (n *Node) Role() node.Role { return n.spec.Role }

// Address returns "host:port" of a named port as other nodes of the run see it.
func (n *Node) Address(port string) string { return n.place.Address(n.spec.Name, port) }

// Login returns what the node's program requires of its clients.
func (n *Node) Login() node.Login { return n.login }

// Dial connects to a named port of the node from the supervisor.
func (n *Node) Dial(ctx context.Context, port string) (net.Conn, error) {
	address := n.Address(port)
	if address == "" {
		return nil, fmt.Errorf("%s has no port %q", n.Name(), port)
	}
	return n.driver.dial(ctx, port, address)
}

// Foreign reports whether the node is external.
func (n *Node) Foreign() bool { return external(n.driver) }

// Differs returns how a node of that spec would differ from this one, or "".
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

// Handles returns the nodes as handles for a service.
func Handles(nodes []*Node) []node.Handle {
	out := make([]node.Handle, len(nodes))
	for i, n := range nodes {
		out[i] = n
	}
	return out
}

// alikeFrom is how long after the begin of a second nodes with Spec.Alike start: the kernel reports the start of a
// process in hundredths of a second, rounded down.
const alikeFrom = 100 * time.Millisecond

// StartAll starts all nodes concurrently. Nodes with Spec.Alike start when a second of the wall clock has just begun,
// so that their start in whole seconds is the same.
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
