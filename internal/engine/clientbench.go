package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
)

// ClientBench holds the nodes of a scenario and leaves its clients to the caller. A test of their program starts them
// one by one, and talks to them.
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
	r.nodes.Left = node.Client
	if err := r.up(ctx); err != nil {
		return nil, errors.Join(ctx.Err(), plan.MissingError{Text: err.Error(), Err: err}, r.finish(ctx))
	}
	return &ClientBench{run: r}, nil
}

// Client returns the node of client number, not yet started, and the start frame for it.
func (b *ClientBench) Client(number int) (*cluster.Node, *wire.Start, error) {
	n := b.run.nodes.Cluster.Node(history.ClientName(number))
	frames := control.StartFrames{Plan: b.run.plan, Nodes: b.run.nodes, Run: b.run.id, Records: true}
	st, err := frames.Of(n, number)
	return n, st, err
}

// LastWords returns the last lines that clients wrote to standard error, once all is closed; nil if there are none.
func (b *ClientBench) LastWords() error { return lastWords(b.run.record.LogDir(), "client-*") }

// Close ends everything that was started.
func (b *ClientBench) Close(ctx context.Context) error {
	return errors.Join(b.run.processes.Stop(ctx, node.Resource), b.run.finish(ctx))
}

// Hellos starts one client of each program that replaces lockquake's own client, and returns their hellos. It starts
// no server: a client sends its hello before it learns the service's address. It returns none if the clients are
// lockquake's own.
func Hellos(ctx context.Context, o Options) (hellos []*wire.Hello, err error) {
	p, err := Check(o)
	if err != nil || len(p.Programs) == 0 {
		return nil, err
	}
	logs, remove, err := state.Scratch("hello")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	specs := make([]node.Spec, len(p.Programs))
	for i := range specs {
		specs[i] = p.ClientSpec(i)
	}
	c, err := o.Provider.Open(ctx, cluster.Request{
		Run: plan.NewID(), Specs: specs, Images: o.Images, LogDir: logs,
		Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	hellos, err = hellosOf(ctx, o, c)
	ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), generous.close)
	defer cancel()
	if closed := c.Close(ended); err != nil || closed != nil {
		return nil, errors.Join(err, closed, lastWords(logs, "*"))
	}
	return hellos, nil
}

func hellosOf(ctx context.Context, o Options, c *cluster.Cluster) (hellos []*wire.Hello, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, generous.hello, fmt.Errorf("not within %v", generous.hello))
	defer cancel()
	if err := cluster.StartAll(ctx, c.Nodes); err != nil {
		return nil, err
	}
	for i, n := range c.Nodes {
		h, err := control.Hello(ctx, n, i, o.Log)
		if err != nil {
			return nil, err
		}
		hellos = append(hellos, h)
	}
	return hellos, nil
}

// lastWords returns, as an error, the last lines in the logs of nodes with such a name; nil if there are none.
func lastWords(logs, names string) error {
	files, err := filepath.Glob(filepath.Join(logs, names+".log"))
	errs := []error{err}
	for _, file := range files {
		text, err := os.ReadFile(file)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if errs = append(errs, err); lines[0] != "" {
			errs = append(errs, fmt.Errorf("%s: its last line: %s", strings.TrimSuffix(filepath.Base(file), ".log"),
				lines[len(lines)-1]))
		}
	}
	return errors.Join(errs...)
}

// Lacks returns an error if a plan's scenario needs something of its clients that the hellos of their programs do not
// announce. Several programs take turns.
func Lacks(p *plan.Plan, hellos []*wire.Hello) error {
	for i := range p.Specs.Of(node.Client) {
		if len(hellos) == 0 {
			break
		}
		if err := plan.CheckAnnounced(p, history.ClientName(i), hellos[i%len(hellos)]); err != nil {
			return err
		}
	}
	return nil
}
