package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// driver is one node as its provider starts and reaches it.
type driver interface {
	// start starts a process for the node and returns its control stream (zero without Spec.Stdio) and what tells of
	// its end. The process outlives ctx.
	start(ctx context.Context) (Stdio, *ending, error)
	// dial connects to a named port of the node, which has that address in the run's network, from the supervisor.
	dial(ctx context.Context, port, address string) (net.Conn, error)
	// signaller returns what inspects and signals the process that start started last.
	signaller(ctx context.Context) (signaller, error)
}

// ending is the end of one process.
type ending struct {
	seen chan struct{} // closed when it has ended
	// how it ended, such as "exit status 0"; "" where that was not seen. To be read when seen is
	// closed.
	how    string
	killed bool // by a SIGKILL
	// left names what the process left behind when it ended, and what came of that; "" where there was nothing. To be
	// read as how is.
	left string
}

func newEnding() *ending { return &ending{seen: make(chan struct{})} }

// signaller acts on one process from outside it.
type signaller interface {
	inspect(ctx context.Context) (chaos.ProcessState, error)
	signal(ctx context.Context, name string) error // "STOP", "CONT", "KILL", "TERM", "INT"
}

// Node is one process of a run, whatever it runs in. Its methods may be called from several goroutines.
type Node struct {
	spec   node.Spec
	place  node.Place
	login  node.Login // what its program asks for
	driver driver

	orders
	signals
	linkFaults
	clockFaults
	diskFaults

	starts atomic.Int32

	starting sync.Mutex // held while a process is being started
	mu       sync.Mutex // guards what follows
	stdio    Stdio
	end      *ending  // of the process that was started last; nil before the first
	left     []string // what those before it left behind
}

var (
	_ process.Pauser = (*Node)(nil)
	_ process.Killer = (*Node)(nil)
	_ chaos.Starter  = (*Node)(nil)
	_ chaos.Delayed  = (*Node)(nil)
)

// newNode makes a node, which has no driver yet.
func newNode(spec node.Spec, place node.Place) *Node {
	n := &Node{spec: spec, place: place}
	n.orders.node, n.signals.node, n.linkFaults.node, n.clockFaults.node, n.diskFaults.node = n, n, n, n, n
	return n
}

// Name returns the node's name within the run.
func (n *Node) Name() string { return n.spec.Name }

// Role returns what the node is for.
func (n *Node) Role() node.Role { return n.spec.Role }

// Address returns "host:port" of a named port as other nodes of the run see it.
func (n *Node) Address(port string) string { return n.place.Address(n.spec.Name, port) }

// Login is what the node's program asks of its clients.
func (n *Node) Login() node.Login { return n.login }

// dialer is how the supervisor connects to nodes.
var dialer = net.Dialer{Timeout: 5 * time.Second}

// Dial connects to a named port of the node from the supervisor.
func (n *Node) Dial(ctx context.Context, port string) (net.Conn, error) {
	address := n.Address(port)
	if address == "" {
		return nil, fmt.Errorf("%s has no port %q", n.Name(), port)
	}
	return n.driver.dial(ctx, port, address)
}

// Start starts the node's process. It does not wait until it serves. Every start but the first waits for RestartDelay
// before it begins.
func (n *Node) Start(ctx context.Context) error {
	n.starting.Lock()
	defer n.starting.Unlock()
	if n.Running() {
		return fmt.Errorf("%s is running already", n.Name())
	}
	if n.Exited() != nil && !n.spec.Restartable {
		return fmt.Errorf("%s cannot be started a second time", n.Name())
	}
	if d := n.StartDelay(); d > 0 {
		waited := clock.Waits(ctx, d)
		err := clock.Sleep(ctx, d)
		waited()
		if err != nil {
			return fmt.Errorf("start %s: given up within its restart delay of %v: %w", n.Name(), d, ctx.Err())
		}
	}
	_, done := clock.Act(ctx)
	done() // an engine takes seconds to start a container, as a server does to serve: that is no slip of who ordered it
	stdio, end, err := n.driver.start(ctx)
	if err != nil {
		return fmt.Errorf("start %s: %w", n.Name(), err)
	}
	n.pauses.Store(0) // those of the process before it went with it
	n.freezes.Store(0)
	n.starts.Add(1)
	defer n.clockChanged()()
	n.mu.Lock()
	if n.end != nil {
		n.left = n.end.leftBehind(n.left)
	}
	n.stdio, n.end = stdio, end
	n.mu.Unlock()
	return n.reapply(ctx)
}

// StartDelay is how long a Start called now waits before it begins.
func (n *Node) StartDelay() time.Duration {
	if n.Exited() == nil {
		return 0
	}
	return n.spec.RestartDelay
}

// Running tells whether the node's process has been started and has not been seen to end.
func (n *Node) Running() bool {
	exited := n.Exited()
	if exited == nil {
		return false
	}
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// lasts returns a function that tells whether the process of now still runs. The network of a container ends with its
// process, so packets that were sent there meanwhile were not lost by a fault.
func (n *Node) lasts() func() bool {
	exited := n.Exited()
	return func() bool { return n.Exited() == exited && n.Running() }
}

// Restartable tells whether Start may be called after the process ended.
func (n *Node) Restartable() bool { return n.spec.Restartable }

// Exited is closed when the process that Start started last has ended; nil before the first Start.
func (n *Node) Exited() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.end == nil {
		return nil
	}
	return n.end.seen
}

// Ended tells how the process that was started last was seen to end, such as "exit status 0"; "" while it runs, and
// where nobody saw that, as on a host that cannot be reached any more.
func (n *Node) Ended() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.end == nil {
		return ""
	}
	select {
	case <-n.end.seen:
		return n.end.how
	default:
		return ""
	}
}

// LeftBehind tells what processes of the node left behind when they ended, and what came of it; nothing where all ended
// with them.
func (n *Node) LeftBehind() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	left := n.left
	if n.end != nil {
		left = n.end.leftBehind(left)
	}
	return slices.Clone(left)
}

// leftBehind appends what is known of a process that has ended.
func (e *ending) leftBehind(to []string) []string {
	select {
	case <-e.seen:
		if e.left != "" {
			return append(to, e.left)
		}
	default:
	}
	return to
}

// Stdio returns the control stream of the running process.
func (n *Node) Stdio() Stdio {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stdio
}

// Handles returns the nodes as a service asks them.
func Handles(nodes []*Node) []node.Handle {
	out := make([]node.Handle, len(nodes))
	for i, n := range nodes {
		out[i] = n
	}
	return out
}

// StartAll starts all nodes side by side.
func StartAll(ctx context.Context, nodes []*Node) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range nodes {
		g.Go(func() error { return n.Start(ctx) })
	}
	return g.Wait()
}

// meter is a driver that knows how much processor time its node has used.
type meter interface {
	used(ctx context.Context) (time.Duration, error)
}

// CPU returns the user and system time of all that runs in the node, since it was started. Only differences mean
// something: what ended meanwhile may be missing.
func (n *Node) CPU(ctx context.Context) (time.Duration, error) {
	m, ok := n.driver.(meter)
	if !ok {
		return 0, chaos.Unavailable{
			What:   "the processor time of " + n.Name(),
			Reason: "it shares its process with others",
		}
	}
	return m.used(ctx)
}

// used sums up the process and all that descends from it.
func (p *localNode) used(context.Context) (time.Duration, error) {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return 0, proc.ErrNoProcess
	}
	return proc.CPU(c.cmd.Process.Pid)
}

// used asks the engine, which reads the container's control group.
func (c *containerNode) used(ctx context.Context) (time.Duration, error) {
	res, err := c.run.api.ContainerStats(ctx, c.box.GetContainerID(), client.ContainerStatsOptions{})
	if err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", c.spec.Name, err)
	}
	defer res.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", c.spec.Name, err)
	}
	return time.Duration(s.CPUStats.CPUUsage.TotalUsage), nil
}
