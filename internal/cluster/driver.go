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

// core is what a node is. Its parts share it, so each of them has the node's name and leads to the others.
type core struct {
	spec   node.Spec
	place  node.Place
	driver driver
	all    []any // the node and its parts
}

// Name returns the node's name within the run.
func (c *core) Name() string { return c.spec.Name }

// Capabilities lists the node and its parts, for chaos.As.
func (c *core) Capabilities() []any { return c.all }

// part is what most parts of a node use of the others.
type part struct {
	*core
	process *Process
	orders  *Orders
	signals *Signals
}

// Inspect reads the state of the node's process.
func (p part) Inspect(ctx context.Context) (chaos.ProcessState, error) { return p.signals.Inspect(ctx) }

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

// meter is a driver that knows how much processor time its node has used.
type meter interface {
	used(ctx context.Context) (time.Duration, error)
}

// measurable is a driver whose node's processes can be looked at from here.
type measurable interface {
	footprint(ctx context.Context) (proc.Footprint, error)
}

// freezable is a driver whose node can be frozen, with its descendants.
type freezable interface {
	freeze(ctx context.Context) error
	thaw(ctx context.Context) error
	// frozen is what is known where no agent can ask the kernel.
	frozen(ctx context.Context) (process.Frozen, error)
}

// atHand is a driver whose node's data directory the supervisor can open by itself.
type atHand interface {
	dataHere() string
}

// Stdio is the control stream of a running node. A stopped node takes no more than what the pipe holds: a Write beyond
// it waits.
type Stdio struct {
	In  io.WriteCloser
	Out io.Reader
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

// dialer is how the supervisor connects to nodes.
var dialer = net.Dialer{Timeout: 5 * time.Second}

// outside drives a node that is not ours.
type outside struct{}

var errOutside = errors.New("the node is not ours to start or signal")

func (outside) start(context.Context) (Stdio, *ending, error) {
	return Stdio{}, nil, errOutside
}

func (outside) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, "tcp", address)
}

func (outside) signaller(context.Context) (signaller, error) { return nil, errOutside }

// external reports whether somebody else runs a driver's node.
func external(d driver) bool {
	_, is := d.(outside)
	return is
}

// signaller acts on one process from outside it.
type signaller interface {
	inspect(ctx context.Context) (chaos.ProcessState, error)
	signal(ctx context.Context, name string) error // "STOP", "CONT", "KILL", "TERM", "INT"
}
