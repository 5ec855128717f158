package kept

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// prover proves that kept servers are as they were when they began to serve. Anything that one run leaves behind
// would be attributed to the next: a packet filter that still drops looks like a partition that was never injected.
// So the prover reads back all that a fault can change. One difference is enough to reject the servers.
//
// Example: a run delayed redis-2 and healed it. Before the next run redis-2 has the pid that the run left, no order
// is active, its link has the queueing disciplines of the start, its clock is within 50 ms, and its settings are
// those of the start.
type prover struct {
	nodes   *deployment.Nodes
	clocks  chaos.Observer
	start   baseline
	left    map[string]int
	cleared []string // what the service's own reset showed
}

// resetTimeout bounds a reset: after that a fresh start is quicker.
const resetTimeout = 15 * time.Second

// clockTolerance is how far the clock of a server may appear to be off. A busy server answers late, and no fault
// moves a clock by so little.
const clockTolerance = 50 * time.Millisecond

// reset has the service cleared, and waits until it serves again.
func (p *prover) reset(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	resetter, ok := p.nodes.Service.(topology.Resetter)
	if !ok {
		return fmt.Errorf("there is no reset for %s", p.nodes.Plan.Backend.Name)
	}
	if p.cleared, err = answered(ctx, resetter.Reset); err != nil {
		return fmt.Errorf("the reset was incomplete: %w", err)
	}
	return p.nodes.AwaitReady(ctx, resetTimeout)
}

// answered repeats a question that timed out, until the context ends: the silence of a busy server says nothing about
// its state.
func answered[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	for {
		out, err := ask(ctx)
		if slow := net.Error(nil); err == nil || ctx.Err() != nil || !errors.As(err, &slow) || !slow.Timeout() {
			return out, err
		}
	}
}

// all collects the proof. The error lists all differences.
func (p *prover) all(ctx context.Context) ([]results.Proof, error) {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	parts := []struct {
		what string
		see  func(context.Context) ([]string, error)
	}{
		{"every server is alive", p.alive},
		{"no fault is active", p.undone},
		{"no fault is active on the links", p.links},
		{"the clocks are right", p.readClocks},
		{"roles and settings are those of the start", p.settings},
	}
	out := make([]results.Proof, len(parts), len(parts)+1)
	errs := make([]error, len(parts))
	var g errgroup.Group
	for i, part := range parts {
		g.Go(func() error {
			evidence, err := part.see(ctx)
			out[i], errs[i] = results.Proof{What: part.what, Evidence: strings.Join(evidence, "; ")}, err
			return nil
		})
	}
	_ = g.Wait() // all errors are collected and reported
	out = append(out, results.Proof{What: "the service is empty", Evidence: strings.Join(p.cleared, "; ")})
	return out, errors.Join(errs...)
}

// look takes the baseline.
func (p *prover) look(ctx context.Context) (baseline, error) {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	var b baseline
	if p.nodes.Agent {
		b.links = map[string][]string{}
	}
	for _, n := range p.nodes.Cluster.ByRole(node.Server) {
		if !p.nodes.Agent {
			break
		}
		around, err := n.Orders.Around(ctx)
		if err != nil {
			return b, fmt.Errorf("around %s: %w", n.Name(), err)
		}
		b.links[n.Name()] = around.Links
	}
	var err error
	if resetter, ok := p.nodes.Service.(topology.Resetter); ok {
		b.settings, err = answered(ctx, resetter.Settings)
	}
	return b, err
}

// pids returns the process id of every server.
func (p *prover) pids(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, n := range p.nodes.Cluster.ByRole(node.Server) {
		state, err := n.Signals.Inspect(ctx)
		if err != nil {
			return nil, err
		}
		out[n.Name()] = state.PID
	}
	return out, nil
}

// each asks all of the nodes in parallel.
func each(nodes []*cluster.Node, ask func(*cluster.Node) (string, error)) ([]string, error) {
	said, errs := make([]string, len(nodes)), make([]error, len(nodes))
	var g errgroup.Group
	for i, n := range nodes {
		g.Go(func() error { said[i], errs[i] = ask(n); return nil })
	}
	_ = g.Wait() // all errors are collected and reported, equal ones of several nodes once
	told := map[string]bool{}
	errs = slices.DeleteFunc(errs, func(err error) bool {
		if err == nil || told[err.Error()] {
			return true
		}
		told[err.Error()] = true
		return false
	})
	return slices.DeleteFunc(said, func(s string) bool { return s == "" }), errors.Join(errs...)
}

// alive checks that every server still has the process that the run before left: its first one, or one that a heal
// started.
func (p *prover) alive(ctx context.Context) ([]string, error) {
	return each(p.nodes.Cluster.ByRole(node.Server), func(n *cluster.Node) (string, error) {
		state, err := n.Signals.Inspect(ctx)
		switch {
		case err != nil:
			return "", err
		case state.Gone():
			return "", fmt.Errorf("%s has no process", n.Name())
		case state.Threads["T"] > 0 || state.Frozen != "":
			return "", fmt.Errorf("%s is stopped (%v)", n.Name(), state)
		case p.left[n.Name()] != state.PID:
			return "", fmt.Errorf("%s is pid %d, but was pid %d at the end of the previous run", n.Name(), state.PID,
				p.left[n.Name()])
		case n.Process.Starts() > 1:
			return fmt.Sprintf("%s: %v, started for the %d. time by a heal", n.Name(), state, n.Process.Starts()), nil
		}
		return fmt.Sprintf("%s: %v, as at its start", n.Name(), state), nil
	})
}

// undone checks that every order given to a server has been taken back.
func (p *prover) undone(context.Context) ([]string, error) {
	return each(p.nodes.Cluster.ByRole(node.Server), func(n *cluster.Node) (string, error) {
		if left := n.Standing(); len(left) > 0 {
			return "", fmt.Errorf("%s is active on %s", strings.Join(left, ", "), n.Name())
		}
		return n.Name() + ": nothing", nil
	})
}

// links has the agent read what filters and shapes packets at every server, and compares it with the baseline. The
// other nodes have new networks.
func (p *prover) links(ctx context.Context) ([]string, error) {
	if p.start.links == nil {
		return []string{"no fault of these runs affects links, and there is no agent"}, nil
	}
	return each(p.nodes.Cluster.ByRole(node.Server), func(n *cluster.Node) (string, error) {
		around, err := n.Orders.Around(ctx)
		if err != nil {
			return "", fmt.Errorf("around %s: %w", n.Name(), err)
		}
		return unchanged(n.Name(), around, p.start.links[n.Name()])
	})
}

// unchanged compares the packet settings around a server with those of its start.
func unchanged(name string, now cluster.Around, was []string) (string, error) {
	switch {
	case len(now.Standing) > 0:
		return "", fmt.Errorf("the agent has not undone %s", strings.Join(now.Standing, ", "))
	case !slices.Equal(now.Links, was):
		return "", fmt.Errorf("the links of %s have [%s], but had [%s]", name, strings.Join(now.Links, ", "),
			strings.Join(was, ", "))
	case now.Shared:
		return name + ": the machine's own network", nil
	case len(was) > 0:
		return fmt.Sprintf("%s: [%s], as at its start", name, strings.Join(was, ", ")), nil
	}
	return name + ": nothing", nil
}

// readClocks asks every server for its wall clock, over its own protocol. If a server reports whole seconds, one of
// its threads reads the clock too.
func (p *prover) readClocks(ctx context.Context) ([]string, error) {
	return each(p.nodes.Cluster.ByRole(node.Server), func(n *cluster.Node) (string, error) {
		low, high, err := chaos.ClockAhead(ctx, p.clocks, n.Name())
		if err != nil {
			return "", fmt.Errorf("the clock of %s: %w", n.Name(), err)
		}
		how := "over its own protocol"
		if undecided(low, high) && n.Orders.Watched(ctx) {
			before := clock.Wall()
			wall, _, err := n.Clock.ReadClocks(ctx)
			after := clock.Wall()
			if err != nil {
				return "", fmt.Errorf("the clock of %s: %w", n.Name(), err)
			}
			low, high, how = time.Unix(0, wall).Sub(after), time.Unix(0, wall).Sub(before),
				"read by one of its threads"
		}
		text := fmt.Sprintf("%s is %s to %s ahead of this machine, %s", n.Name(), low.Round(time.Millisecond/10),
			high.Round(time.Millisecond/10), how)
		if isOff(low, high) {
			return "", errors.New("the clock of " + text)
		}
		return text, nil
	})
}

// isOff reports whether a clock is wrong for every offset from this machine's between low and high.
func isOff(low, high time.Duration) bool { return low > clockTolerance || high < -clockTolerance }

// undecided reports whether a clock may be right but was read too coarsely to decide.
func undecided(low, high time.Duration) bool { return !isOff(low, high) && high-low > 2*clockTolerance }

// settings compares the service's report about itself with that from its start.
func (p *prover) settings(ctx context.Context) ([]string, error) {
	now, err := answered(ctx, p.nodes.Service.(topology.Resetter).Settings)
	if err != nil {
		return nil, err
	}
	if d := differences(now, p.start.settings); len(d) > 0 {
		return nil, errors.New(strings.Join(d, "; "))
	}
	return []string{fmt.Sprintf("%d of them were compared", len(now))}, nil
}
