package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/cluster"
)

// servicePlanner finds the backend, the lock and the servers.
type servicePlanner struct {
	plan *Plan
	from Request
}

// find finds the service that the scenario names.
func (p servicePlanner) find() error {
	s := p.plan.Scenario.Backend
	i := slices.IndexFunc(p.from.Catalog.Backends, func(b listed.Backend) bool { return b.Name == s.Use })
	if i < 0 {
		return p.plan.wrong("backend.use", "there is no backend %q; there are %s", s.Use,
			names(p.from.Catalog.Backends, func(b listed.Backend) string { return b.Name }))
	}
	p.plan.Backend = p.from.Catalog.Backends[i]
	var ok bool
	if p.plan.Lock, ok = p.plan.Backend.Lock(s.Lock); !ok {
		return p.plan.wrong("backend.lock", "%s has no lock %q; it has %s", s.Use, s.Lock,
			names(p.plan.Backend.Locks, func(l backends.Lock) string { return l.Name }))
	}
	if err := p.checkTTL(); err != nil {
		return err
	}
	common, err := p.common(topology.Common{Nodes: s.Nodes, TTL: s.TTL, Lock: p.plan.Lock.Name})
	if err != nil {
		return err
	}
	t, err := p.plan.Backend.New(common, s.Params.Decode)
	if err != nil {
		return p.plan.placed("backend", err)
	}
	p.plan.Topology = t
	p.plan.Lock = listed.Declared(p.plan.Lock, t)
	if err := p.checkTTL(); err != nil {
		return err
	}
	if err := p.attach(); err != nil {
		return err
	}
	if l := limits(s.Limits); len(t.Specs()) == 0 && !l.None() {
		return p.plan.wrong("backend", "%s has no servers to limit to %v", s.Use, l)
	}
	for _, spec := range t.Specs() {
		spec.Limits = limits(s.Limits)
		p.plan.Specs = append(p.plan.Specs, spec)
	}
	return nil
}

// checkTTL rejects a TTL that the service would not honour.
func (p servicePlanner) checkTTL() error {
	if s := p.plan.Scenario.Backend; s.TTL < p.plan.Lock.MinTTL {
		return p.plan.wrong("backend.ttl", "%v is too short for %s: its %s lock needs at least %v", s.TTL, s.Use,
			p.plan.Lock.Name, p.plan.Lock.MinTTL)
	}
	return nil
}

// common adds that the servers are external, if they are, to what a backend gets.
func (p servicePlanner) common(c topology.Common) (topology.Common, error) {
	a, s := p.from.Attached, p.plan.Scenario.Backend
	if a == nil {
		return c, nil
	}
	if s.Use != a.Backend {
		return c, p.plan.wrong("backend.use", "it is %s, but the service of --attach is %s", s.Use, a.Backend)
	}
	if len(p.plan.Backend.Attachable) == 0 {
		return c, UsageError{Text: fmt.Sprintf("--attach: %s cannot be attached; these can: %s", s.Use,
			names(slices.DeleteFunc(slices.Clone(p.from.Catalog.Backends),
				func(b listed.Backend) bool { return len(b.Attachable) == 0 }),
				func(b listed.Backend) string { return b.Name }))}
	}
	ports, n := a.ports(), len(a.Endpoints)
	for _, port := range p.plan.Backend.Attachable {
		if ports[port] == 0 {
			return c, UsageError{Text: fmt.Sprintf("--attach: backend %s needs endpoints of its port %q, but the file has none", s.Use, port)}
		}
		n -= ports[port]
	}
	if n != 0 {
		return c, UsageError{Text: fmt.Sprintf("--attach: backend %s only has endpoints of %s; the file has others",
			s.Use, strings.Join(p.plan.Backend.Attachable, ", "))}
	}
	if s.Nodes != 0 && s.Nodes != len(a.Endpoints) {
		return c, p.plan.wrong("backend.nodes", "%d nodes are requested, but --attach has %d endpoints", s.Nodes,
			len(a.Endpoints))
	}
	if !limits(s.Limits).None() {
		return c, p.plan.wrong("backend", "lockquake cannot limit attached servers; omit cpus and memory")
	}
	p.plan.ID = NewID()
	p.plan.Prefix = a.below(p.plan.ID)
	c.Nodes = len(a.Endpoints)
	c.Attached = &topology.Attached{
		Run: p.plan.ID, Under: a.Prefix, Prefix: p.plan.Prefix, Ports: ports, Master: a.Master,
		Database: a.Database,
	}
	return c, nil
}

// attach adds the nodes of the external servers to the plan.
func (p servicePlanner) attach() (err error) {
	var endpoints []cluster.Endpoint
	specs := p.plan.Topology.Specs()
	if p.from.Attached != nil {
		endpoints = p.from.Attached.Endpoints
	} else if o, ok := p.plan.Topology.(topology.Outside); ok {
		for i, address := range o.Outside() {
			endpoints = append(endpoints, cluster.Endpoint{Port: specs[i].Ports[0].Name, Address: address})
		}
	}
	if len(endpoints) == 0 {
		return nil
	}
	p.plan.Outside, err = cluster.Attach(specs, endpoints)
	if err != nil && p.from.Attached == nil {
		return p.plan.wrong("backend.endpoints", "%v", err)
	}
	if err != nil {
		return UsageError{Text: fmt.Sprintf("--attach: %v", err)}
	}
	return nil
}
