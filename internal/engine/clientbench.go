package engine

import (
	"context"
	"errors"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
)

// ClientBench is the nodes of a scenario, of which the clients are left to the caller: a test of their program starts them one by one, and
// speaks to them.
type ClientBench struct{ run *run }

// OpenClientBench starts the service and the resource of a scenario, and makes its clients. It must be closed.
func OpenClientBench(ctx context.Context, o Options) (*ClientBench, error) {
	p, err := Check(o)
	if err != nil {
		return nil, err
	}
	r := newRun(o, p)
	if err := r.prepare(); err != nil {
		return nil, err
	}
	r.nodes.left = node.Client
	if err := r.up(ctx); err != nil {
		return nil, errors.Join(ctx.Err(), MissingError{Text: err.Error(), Err: err}, r.finish(ctx))
	}
	return &ClientBench{run: r}, nil
}

// Client returns the node of the client of that number, not yet started, and what it would be told to start with.
func (b *ClientBench) Client(number int) (*cluster.Node, *wire.Start, error) {
	n := b.run.nodes.cluster.Node(clientName(number))
	frames := startFrames{plan: b.run.plan, nodes: b.run.nodes, run: b.run.id, record: true}
	st, err := frames.of(&process{node: n, index: number})
	return n, st, err
}

// Close ends all that was started.
func (b *ClientBench) Close(ctx context.Context) error {
	return errors.Join(b.run.processes.stop(ctx, node.Resource), b.run.finish(ctx))
}
