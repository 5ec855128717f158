// Package kept keeps servers for runs that use them one after another, and proves that nothing of the run before is
// left in them.
package kept

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// Servers are servers that runs use one after another, with their network and the agent. Starting servers takes
// seconds, resetting them a fraction of one. A run takes them over if it would start the same ones, and if it can
// prove that nothing of the run before is left. Otherwise it starts its own servers, which are kept instead. Every
// run has its own clients and resource. The zero value is ready for a first run. It must be closed.
//
// Example: ten runs of one scenario on three Redis servers. Run 1 starts the servers and notes their settings. Runs 2
// to 5 reset them. Run 6 finds a server with another pid than run 5 left, says so, and starts three new ones, which
// run 7 takes over.
type Servers struct {
	// Agent says that a later run needs the agent. Such a run does not take over servers that started to serve
	// without one.
	Agent    bool
	cluster  *cluster.Cluster // nil: the next run starts its own
	provider cluster.Provider
	images   map[string]string // as asked for
	from     string            // directory of the run that started it
	start    baseline
	left     map[string]int // pid by server, as the run before left them
	why      string         // why the run before left none
}

// baseline is the state when the servers began to serve, before there was any client or fault.
type baseline struct {
	links    map[string][]string // by server: what filters and shapes its packets; nil: there is no agent
	settings map[string]string
}

// Nodes returns the servers that wait for the next run; none if it will start its own.
func (k *Servers) Nodes() []*cluster.Node {
	if k.cluster == nil {
		return nil
	}
	return k.cluster.ByRole(node.Server)
}

// closeWithin bounds the end of servers that no run uses any more.
const closeWithin = time.Minute

// Close ends the servers that still run.
func (k *Servers) Close(ctx context.Context) error {
	if k == nil || k.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	err := k.cluster.Close(ctx)
	k.cluster = nil
	return err
}

// Takeover gives a run the servers of an earlier one, or says why it cannot. It keeps this run's servers for the
// next.
type Takeover struct {
	Kept     *Servers // nil: no run shares servers with this one
	Plan     *plan.Plan
	Provider cluster.Provider
	Images   map[string]string // as asked for
	Nodes    *deployment.Nodes
	Clocks   chaos.Observer
	Faults   *rundir.Faults
	Dir      *rundir.Dir
	Tell     func(string) // shows what happened just now
	took     bool         // this run uses kept servers
	Left     error        // why kept servers could not be removed, if this run starts its own
}

// TakeOver makes the kept servers those of this run, if there are any and they are proved to be clean. If the proof
// fails, it ends them and records the reason. A failed removal does not affect the run, which has its own network.
func (t *Takeover) TakeOver(ctx context.Context) (bool, error) {
	k := t.Kept
	if k == nil {
		return false, nil
	}
	if k.cluster == nil {
		t.fresh(k.why)
		return false, nil
	}
	var proof []results.Proof
	err := t.Dir.Timing(results.TimeReset, func() (err error) { proof, err = t.reuse(ctx); return err })
	if err == nil {
		from, err := filepath.Rel(filepath.Dir(t.Dir.Path), k.from)
		if err != nil {
			from = k.from // one of them is not below the working directory
		}
		t.Dir.Change(func(e *results.Env) { e.Kept, e.KeptFrom, e.KeptProof = true, from, proof })
		t.took = true
		return true, nil
	}
	if ctx.Err() != nil {
		return false, err // finish tears down
	}
	t.fresh(strings.ReplaceAll(err.Error(), "\n", "; "))
	var unclosed error
	if t.Nodes.Service != nil {
		unclosed = t.Nodes.Service.Close()
	}
	t.Nodes.Cluster, t.Nodes.Service = nil, nil
	t.Left = errors.Join(k.Close(ctx), unclosed)
	return false, nil
}

// fresh records why this run starts its own servers although one ran before it.
func (t *Takeover) fresh(why string) {
	if why == "" {
		return
	}
	t.Dir.Change(func(e *results.Env) { e.Fresh = why })
	t.Tell("new servers are started: " + why)
}

// reuse resets the kept servers, makes new clients and a new resource, and collects the proof.
func (t *Takeover) reuse(ctx context.Context) ([]results.Proof, error) {
	t.Nodes.Cluster = t.Kept.cluster
	if err := t.sameServers(); err != nil {
		return nil, err
	}
	p := prover{nodes: t.Nodes, clocks: t.Clocks, start: t.Kept.start, left: t.Kept.left}
	if _, err := p.alive(ctx); err != nil { // a server that is gone or stopped would not answer
		return nil, err
	}
	if err := t.Nodes.Cluster.Renew(ctx, cluster.Request{
		Specs: t.Plan.Specs, LogDir: t.Dir.LogDir(),
		Needs: t.Plan.Needs,
	}); err != nil {
		return nil, err
	}
	t.Nodes.Connect()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.reset(gctx) })
	g.Go(func() error {
		return cluster.StartAll(gctx, slices.Concat(t.Nodes.Cluster.ByRole(node.Client),
			t.Nodes.Cluster.ByRole(node.Resource)))
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return p.all(ctx)
}

// sameServers checks that the kept servers are those that this run would start.
func (t *Takeover) sameServers() error {
	k := t.Kept
	switch {
	case k.provider != t.Provider:
		return fmt.Errorf("the kept servers belong to another provider than %s", t.Provider.Name())
	case !maps.Equal(k.images, t.Images):
		return errors.New("the kept servers have other images")
	case t.Plan.NeedsAgent() && k.start.links == nil:
		return errors.New("faults of this run need the agent, but the kept servers started without one")
	}
	count := 0
	for _, want := range t.Plan.Specs {
		if want.Role != node.Server {
			continue
		}
		count++
		n := k.cluster.Node(want.Name)
		if n == nil {
			return fmt.Errorf("this run needs %s, which is not among the kept servers", want.Name)
		}
		if what := n.Differs(want); what != "" {
			return fmt.Errorf("this run needs another %s than the kept one (%s)", want.Name, what)
		}
	}
	if n := len(k.Nodes()); n != count {
		return fmt.Errorf("this run needs %d servers, but %d are kept", count, n)
	}
	return nil
}

// Remember keeps the servers' initial state as the baseline for later runs.
func (t *Takeover) Remember(ctx context.Context) {
	k := t.Kept
	if k == nil || t.took {
		return
	}
	p := prover{nodes: t.Nodes}
	b, err := p.look(ctx)
	k.start, k.from, k.why = b, t.Dir.Path, ""
	k.provider, k.images = t.Provider, t.Images
	if err != nil {
		k.why = "their initial state is unknown: " + err.Error()
	}
}

// HandOn leaves the servers to the next run, or records why it cannot.
func (t *Takeover) HandOn(ctx context.Context) (kept bool) {
	k := t.Kept
	if k == nil {
		return false
	}
	k.cluster = nil
	if k.why == "" {
		k.why = t.unfit()
	}
	if k.why != "" {
		return false
	}
	p := prover{nodes: t.Nodes}
	left, err := p.pids(ctx)
	if err == nil {
		err = t.Nodes.Cluster.Vacate(ctx)
	}
	if err != nil {
		k.why = err.Error()
		return false
	}
	k.cluster, k.left = t.Nodes.Cluster, left
	return true
}

// unfit returns why no other run can take over these servers, or "". The next run must prove the rest.
func (t *Takeover) unfit() string {
	for _, s := range t.Plan.Specs {
		if s.Role == node.Server && len(s.Preparations) > 0 {
			return fmt.Sprintf("%s was prepared for a fault (%s)", s.Name, s.Preparations[0])
		}
	}
	_, resets := t.Nodes.Service.(topology.Resetter)
	why := ""
	t.Dir.Change(func(e *results.Env) {
		switch {
		case e.Interrupted:
			why = "the previous run was cut short"
		case !e.Recovered:
			why = "the service was not seen serving at the end of the previous run"
		case !resets:
			why = fmt.Sprintf("there is no reset for %s", t.Plan.Backend.Name)
		case len(e.Unknown) > 0:
			why = "the previous run left doubt: " + e.Unknown[0]
		}
	})
	return cmp.Or(why, t.Faults.Damage())
}

// differences lists what has changed, at most three items.
func differences(now, then map[string]string) []string {
	all := maps.Clone(then)
	maps.Copy(all, now)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		a, was := then[name]
		b, is := now[name]
		if a != b || was != is {
			out = append(out, fmt.Sprintf("%s is %q but was %q", name, b, a))
		}
	}
	if len(out) > 3 {
		out = append(out[:3], fmt.Sprintf("%d more", len(out)-3))
	}
	return out
}
