package engine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/results"
)

// Ground is what runs of one scenario stand on, one after another: its servers, their network and the agent. A run takes it over
// only where all that the run before could have left is shown to be gone; else it starts servers of its own. Clients and resource are
// each run's own. The zero value is ready for a first run. It must be closed.
type Ground struct {
	cluster *cluster.Cluster // nil: the next run starts its own
	from    string           // directory of the run that started it
	start   baseline
	left    map[string]int // pid by server, as the run before left them
	why     string         // why the run before left none
}

// baseline is what was seen when the servers began to serve, before any client or fault was there.
type baseline struct {
	links    map[string][]string // what rules over a node's packets
	settings map[string]string
}

// Nodes returns the nodes that stand between two runs; none where the next run will start its own.
func (g *Ground) Nodes() []*cluster.Node {
	if g.cluster == nil {
		return nil
	}
	return g.cluster.ByRole(cluster.Server)
}

// Close ends what still stands.
func (g *Ground) Close(ctx context.Context) error {
	if g == nil || g.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), generous.close)
	defer cancel()
	err := g.cluster.Close(ctx)
	g.cluster = nil
	return err
}

// takeOver furnishes the servers of an earlier run for this one, where there are any and they prove to be clean. Where they do
// not, they are ended, and the reason is told.
func (r *run) takeOver(ctx context.Context) (bool, error) {
	g := r.options.Ground
	if g == nil {
		return false, nil
	}
	if g.cluster == nil {
		r.fresh(g.why)
		return false, nil
	}
	var proof []results.Proof
	err := r.timing(results.TimeReset, func() (err error) { proof, err = r.stand(ctx); return err })
	if err == nil {
		r.env.Kept, r.env.KeptFrom, r.env.KeptProof = true, g.from, proof
		return true, nil
	}
	if ctx.Err() != nil {
		return false, err // finish tears down
	}
	r.fresh(strings.ReplaceAll(err.Error(), "\n", "; "))
	if r.service != nil {
		err = r.service.Close()
	}
	r.cluster, r.service = nil, nil
	return false, errors.Join(g.Close(ctx), err)
}

// fresh notes why this run starts servers of its own although one ran before it.
func (r *run) fresh(why string) {
	if why == "" {
		return
	}
	r.env.Fresh = why
	r.progress("servers are started anew: " + why)
}

// stand brings the kept servers back to how they began, makes clients and resource anew, and collects the proof.
func (r *run) stand(ctx context.Context) ([]results.Proof, error) {
	r.cluster = r.options.Ground.cluster
	if err := r.sameSpecs(); err != nil {
		return nil, err
	}
	r.service = r.plan.topology.Service(r.cluster.ByRole(cluster.Server))
	p := prover{run: r, start: r.options.Ground.start, left: r.options.Ground.left}
	if _, err := p.processes(ctx); err != nil { // a server that is gone or stopped would not answer
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.cluster.Renew(gctx, r.logDir()) })
	g.Go(func() error { return p.reset(gctx) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := startAll(ctx, slices.Concat(r.cluster.ByRole(cluster.Client), r.cluster.ByRole(cluster.Resource))); err != nil {
		return nil, err
	}
	return p.all(ctx)
}

// sameSpecs sees that the nodes that stand are those that this run would start.
func (r *run) sameSpecs() error {
	for _, want := range r.plan.specs {
		n := r.cluster.Node(want.Name)
		if n == nil || !n.Like(want) {
			return fmt.Errorf("this run needs another %s than the one that stands", want.Name)
		}
	}
	if len(r.cluster.Nodes) != len(r.plan.specs) {
		return fmt.Errorf("this run needs %d nodes, and %d stand", len(r.plan.specs), len(r.cluster.Nodes))
	}
	return nil
}

// remember takes down how the servers began to serve, for the runs to come.
func (r *run) remember(ctx context.Context) {
	g := r.options.Ground
	if g == nil || r.env.Kept {
		return
	}
	p := prover{run: r}
	b, err := p.look(ctx)
	g.start, g.from, g.why = b, r.name(), ""
	if err != nil {
		g.why = "how they began was not to be seen: " + err.Error()
	}
}

// handOn leaves the servers to the next run; where they cannot be left to it, the ground says why.
func (r *run) handOn(ctx context.Context) (kept bool) {
	g := r.options.Ground
	if g == nil {
		return false
	}
	g.cluster = nil
	if g.why == "" {
		g.why = r.unfit()
	}
	if g.why != "" {
		return false
	}
	p := prover{run: r}
	left, err := p.pids(ctx)
	if err == nil {
		err = r.cluster.Vacate(ctx)
	}
	if err != nil {
		g.why = err.Error()
		return false
	}
	g.cluster, g.left = r.cluster, left
	return true
}

// unfit says why no other run can stand on these servers, or "". What it lets pass, the next run has to prove.
func (r *run) unfit() string {
	for _, s := range r.plan.specs {
		if s.Role == cluster.Server && len(s.Preparations) > 0 {
			return fmt.Sprintf("%s was prepared for a fault (%s)", s.Name, s.Preparations[0])
		}
	}
	_, resets := r.service.(backends.Resetter)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.env.Interrupted:
		return "the run before was cut short"
	case !r.env.Recovered:
		return "the service was not seen to serve at the end of the run before"
	case !resets:
		return fmt.Sprintf("nobody knows how to reset %s", r.plan.backend.Name)
	case len(r.env.Unknown) > 0:
		return "the run before left a question: " + r.env.Unknown[0]
	}
	for i, f := range r.faults {
		if f.Receipt.Status == history.NotMade {
			continue
		}
		for _, need := range r.injected[i].needs() {
			if need == chaos.CanData || need == chaos.CanCutPower {
				return fmt.Sprintf("%s on %s took data away", f.Name, f.Target)
			}
		}
		if f.Healed == nil || f.Healed.Status != history.Installed {
			return fmt.Sprintf("%s on %s was not seen healed", f.Name, f.Target)
		}
	}
	return ""
}

// differences names what is not as it was, at most three.
func differences(now, then map[string]string) []string {
	if reflect.DeepEqual(now, then) {
		return nil
	}
	var out []string
	for _, m := range []map[string]string{then, now} {
		for name := range m {
			a, was := then[name]
			b, is := now[name]
			switch text := fmt.Sprintf("%s is %q and was %q", name, b, a); {
			case was && is && a == b || slices.Contains(out, text):
			default:
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	if len(out) > 3 {
		out = append(out[:3], fmt.Sprintf("%d more", len(out)-3))
	}
	return out
}
