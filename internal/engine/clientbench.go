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

// ClientBench is the nodes of a scenario, of which the clients are left to the caller: a test of their program starts
// them one by one, and speaks to them.
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

// Client returns the node of the client of that number, not yet started, and what it would be told to start with.
func (b *ClientBench) Client(number int) (*cluster.Node, *wire.Start, error) {
	n := b.run.nodes.Cluster.Node(history.ClientName(number))
	frames := control.StartFrames{Plan: b.run.plan, Nodes: b.run.nodes, Run: b.run.id, Records: true}
	st, err := frames.Of(n, number)
	return n, st, err
}

// LastWords are the last lines that clients wrote on standard error, once all is closed; nil: there are none.
func (b *ClientBench) LastWords() error { return lastWords(b.run.record.LogDir(), "client-*") }

// Close ends all that was started.
func (b *ClientBench) Close(ctx context.Context) error {
	return errors.Join(b.run.processes.Stop(ctx, node.Resource), b.run.finish(ctx))
}

// Hellos starts one client of each program that stands in for lockquake's own client, and returns what they say of
// themselves. No server is started for that: a hello comes unasked, before a client is told where the service is. There
// are none where the clients are lockquake's own.
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

// lastWords are the last lines that nodes of such a name wrote into their logs, as an error; nil: there are none.
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

// Lacks says what the scenario of a plan asks of clients that the hellos of their programs, which take turns, do not
// announce; nil: nothing.
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
