package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/node"
)

// core is the common state of a node. Its parts share it, so each has the node's name and leads to the others.
type core struct {
	spec   node.Spec
	place  node.Place
	driver driver
	all    []any // the node and its parts
}

// Name returns the node's name within the run.
func (c *core) Name() string { return c.spec.Name }

// Capabilities returns the node and its parts, for chaos.As.
func (c *core) Capabilities() []any { return c.all }

// part has what most parts of a node use of the others.
type part struct {
	*core
	process *Process
	orders  *Orders
	signals *Signals
}

// Inspect reads the state of the node's process.
func (p part) Inspect(ctx context.Context) (chaos.ProcessState, error) { return p.signals.Inspect(ctx) }

// driver starts and reaches one node for its provider.
type driver interface {
	// start starts a process for the node and returns its control stream (zero without Spec.Stdio) and its ending. The
	// process outlives ctx.
	start(ctx context.Context) (Stdio, *ending, error)
	// dial connects from the supervisor to a named port of the node, which has that address in the run's network.
	dial(ctx context.Context, port, address string) (net.Conn, error)
	// signaller returns the signaller of the last started process.
	signaller(ctx context.Context) (signaller, error)
}

// meter is a driver that knows the CPU time of its node.
type meter interface {
	used(ctx context.Context) (time.Duration, error)
}

// measurable is a driver whose node's processes can be measured from here.
type measurable interface {
	footprint(ctx context.Context) (proc.Footprint, error)
}

// freezable is a driver whose node can be frozen, with its descendants.
type freezable interface {
	freeze(ctx context.Context) error
	thaw(ctx context.Context) error
	// frozen returns the state if no agent can ask the kernel.
	frozen(ctx context.Context) (process.Frozen, error)
}

// atHand is a driver whose node's data directory the supervisor can open itself.
type atHand interface {
	dataHere() string
}

// Stdio is the control stream of a running node. If the node is stopped, a Write blocks once the pipe is full.
type Stdio struct {
	In  io.WriteCloser
	Out io.Reader
}

// ending is the end of one process.
type ending struct {
	seen chan struct{} // closed when it has ended
	// how it ended, such as "exit status 0"; "" if that was not seen. To be read once seen is closed.
	how    string
	killed bool // by a SIGKILL
	// left names what the process left behind when it ended, and what was done about it; "" if nothing. To be read once
	// seen is closed.
	left string
}

func newEnding() *ending { return &ending{seen: make(chan struct{})} }

// leftBehind appends what a process left behind, once it has ended.
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

// dialer connects the supervisor to nodes.
var dialer = net.Dialer{Timeout: 5 * time.Second}

// outside drives a node that is not ours.
type outside struct{}

var errOutside = errors.New("lockquake cannot start or signal this node")

func (outside) start(context.Context) (Stdio, *ending, error) {
	return Stdio{}, nil, errOutside
}

func (outside) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, "tcp", address)
}

func (outside) signaller(context.Context) (signaller, error) { return nil, errOutside }

// external reports whether a driver's node is external.
func external(d driver) bool {
	_, is := d.(outside)
	return is
}

// signaller acts on one process from outside it.
type signaller interface {
	inspect(ctx context.Context) (chaos.ProcessState, error)
	signal(ctx context.Context, name string) error // "STOP", "CONT", "KILL", "TERM", "INT"
}
