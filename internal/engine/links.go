package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/seed"
)

// nodesOf replaces the users that steps name by their clients.
func (p *Plan) nodesOf(names []string) []string {
	var out []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if k := slices.Index(p.people, name); k >= 0 {
			name = p.personNode(k)
		}
		out = append(out, name)
	}
	return out
}

// checkLinks reads whom a link fault names at the other end, and sees that the ports that it names are there.
func (p *Plan) checkLinks(inj *injection) error {
	l, ok := inj.fault.(chaos.Linked)
	if !ok {
		return nil
	}
	var err error
	if inj.far, err = chaos.ParseFar(p.nodesOf(l.Far()), p.nodeNames()); err != nil {
		return err
	}
	own, far := l.Ports()
	if err := p.checkPort(own, inj.selector); err != nil {
		return err
	}
	return p.checkPort(far, inj.far)
}

// checkPort sees that all nodes that a selector may pick have a port of that name.
func (p *Plan) checkPort(port chaos.PortName, of chaos.Selector) error {
	if _, ok := port.Number(); ok || port == "" {
		return nil
	}
	for _, s := range p.picks(of) {
		if !slices.ContainsFunc(s.Ports, func(x cluster.Port) bool { return x.Name == string(port) }) {
			return fmt.Errorf("%s may be at that end of a link, and has no port %q; it has %s", s.Name, port,
				names(s.Ports, func(x cluster.Port) string { return x.Name }))
		}
	}
	return nil
}

// picks returns the nodes that a selector may pick.
func (p *Plan) picks(sel chaos.Selector) []cluster.Spec {
	var out []cluster.Spec
	for _, s := range p.specs {
		if slices.ContainsFunc(sel.Parts(), func(part string) bool { return mayPick(part, s) }) {
			out = append(out, s)
		}
	}
	return out
}

// mayPick tells whether a word or name of a selector may pick a node.
func mayPick(part string, s cluster.Spec) bool {
	word, _, _ := strings.Cut(part, "(") // some name a lock in brackets
	switch word {
	case s.Name, chaos.Rest:
		return true
	case "clients", "holder":
		return s.Role == cluster.Client
	case "one", "minority", "majority", "all", "leader", "followers":
		return s.Role == cluster.Server
	}
	return false
}

// scope is where an injection goes, with the other ends of its links as they are now.
func (r *run) scope(ctx context.Context, inj injection, f *history.Fault, on []chaos.Node) (chaos.Scope, error) {
	s := chaos.Scope{
		On: on, Service: clocks{r}, Seed: seed.Split(r.plan.scenario.Run.Seed, fmt.Sprintf("fault-%d", f.ID)),
		Others: func() int { return r.heals.Others(f.ID) }, Lanes: &r.lanes,
		Counts: func(c chaos.Counted) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.counted[f.ID] = c
		},
		Follow: func(l *chaos.Lead) { r.follow(f, l) },
	}
	for _, n := range r.cluster.ByRole(cluster.Server) {
		s.Servers = append(s.Servers, n.Name())
	}
	s.Role, _ = inj.selector.Leader(r.service)
	if len(inj.far.Parts()) == 0 {
		return s, nil
	}
	draws := inj.draws
	if draws == "" {
		draws = fmt.Sprintf("peers-%d", f.ID)
	}
	view := r.view(draws)
	view.Except = on
	var err error
	if s.Peers, err = inj.far.Resolve(ctx, view); err != nil {
		return s, fmt.Errorf("the other end of the links: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Peers = nil
	for _, n := range s.Peers {
		f.Peers = append(f.Peers, n.Name())
	}
	return s, nil
}

// view is the run's nodes as they are now, with a source of random numbers by that name.
func (r *run) view(random string) chaos.View {
	v := chaos.View{Service: r.service, Random: seed.Rand(r.plan.scenario.Run.Seed, random)}
	for _, n := range r.cluster.Nodes {
		v.All = append(v.All, n)
		switch n.Role() {
		case cluster.Server:
			v.Servers = append(v.Servers, n)
		case cluster.Client:
			v.Clients = append(v.Clients, n)
		case cluster.Resource:
		}
	}
	return v
}

// awaitBitten waits until an injection has met a packet since its receipt was taken.
func (r *run) awaitBitten(ctx context.Context, f *history.Fault) error {
	r.mu.Lock()
	counted, ok := r.counted[f.ID]
	r.mu.Unlock()
	if !ok {
		return fmt.Errorf("%s on %s counts no packets", f.Name, f.Target)
	}
	for {
		n, err := counted.Packets(ctx)
		if err == nil && n > 0 {
			return nil
		}
		if serr := clock.Sleep(ctx, 5*time.Millisecond); serr != nil {
			if err != nil {
				return fmt.Errorf("%w; its packets cannot be counted: %w", serr, err)
			}
			return fmt.Errorf("%w; it has met no packet", serr)
		}
	}
}
