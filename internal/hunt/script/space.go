package script

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// Space is what can be done to a lock on this machine. It is found by asking the lock, its service, the faults and
// the provider, without a list of known weaknesses.
type Space struct {
	// Base is the scenario that every try is laid over: its name, claim, backend and expectations. Its workload
	// provides the clients' program, and what users check before they write.
	Base   scenarios.Scenario
	TTL    time.Duration
	TTLs   []time.Duration // that a script can have, TTL among them; empty: only that one
	Faults []Fault         // that can be delivered here
	Points []Point         // announced by the lock's clients
	Users  []string

	Renews  bool // a call can renew grants
	Cancels bool // a user can give up
	Closes  bool // a user can close its lock
	Extends bool // grants are renewed, by whatever means
	Shared  bool // the lock has shared mode
	Dies    bool // a client can end alone
	Expires bool // grants end by themselves
	Stored  bool // the service as a whole can be asked who holds a lock
	// Shortest and Longest bound the load of a run. A load as long as Patience, if that is not zero, shows whether a
	// lock is stuck.
	Shortest, Longest, Patience time.Duration

	request engine.Request
	kinds   map[string]chaos.Kind
}

// Fault is one way of a kind of fault, with the targets that it can hit here.
type Fault struct {
	Kind    chaos.Kind
	Targets []string
	OnUsers bool     // the user of a visit can be its target
	Keys    []string // alternatives, as YAML: "by: 50ms"
	Fresh   bool     // servers that it hit cannot be used by later runs
}

// Point is a place where a client can be stopped.
type Point struct {
	Name   string
	Before string // the call that passes it
}

// Asked describes a hunt.
type Asked struct {
	// Request is the request of every run. Its scenario is the Base.
	Request engine.Request
	// Announced lists the points that a program in place of lockquake's own client announces.
	Announced []string
	// Takes reports whether such a program supports an order, such as renew or cancel, according to its hello; nil
	// means it supports all.
	Takes func(order string) bool
	// Patient says that a goal of the hunt is reached by nothing but waiting: half of the loads are long then.
	Patient bool
	// TTL says that the scenario's TTL is that of every run.
	TTL bool
}

// Refused is a fault, or a way of one, that cannot be delivered here.
type Refused struct {
	Fault  string
	Keys   string
	Reason string
	Never  bool // it makes no sense for this service on any machine
}

// The bounds of a run's load, and the least number of TTLs in it.
const (
	shortest = 2 * time.Second
	longest  = 4 * time.Second
	leastTTL = 2
	mostTTL  = 3
)

// usualTTLs are tried beside the scenario's. With a shorter one, more grants end within a run.
var usualTTLs = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}

// NewSpace determines what can be done to the lock of the scenario. It starts nothing. refused lists, in the order of
// the catalog, what cannot be delivered, with the reason. An error is the one that a run of the scenario would
// return.
func NewSpace(ctx context.Context, a Asked) (s Space, refused []Refused, err error) {
	s = Space{Base: a.Request.Scenario, TTL: a.Request.Scenario.Backend.TTL, request: a.Request}
	s.Shortest, s.Longest = bounds(s.TTL)
	p, err := s.check(Script{For: s.Shortest, Crowd: Crowd{Clients: 1, Users: 1, Locks: 1}})
	if err != nil {
		return s, nil, err
	}
	if !a.TTL {
		s.addTTLs(p)
	}
	if params, err := json.Marshal(p.Topology.Params()); err == nil && a.Patient { // a lock is stuck when that is over
		s.Patience = p.Lock.Bound(s.TTL, params) + leastTTL*s.TTL
		s.Longest = max(s.Longest, s.Patience)
	}
	o := p.Lock.Offers
	s.Renews, s.Extends, s.Shared = o.Renewal == "call", o.Renewal != "none", o.Shared && len(p.Programs) == 0
	s.Dies, s.Expires = !p.Backend.InProcess, o.Expires
	takes := func(order string) bool { return a.Takes == nil || a.Takes(order) }
	s.Renews, s.Extends = s.Renews && takes(wire.DoRenew), s.Extends && takes(wire.DoRenew)
	s.Cancels, s.Closes = takes(wire.DoCancel), takes(wire.DoClose)
	if s.Base.Workload.Check == "" && s.Expires && len(p.Programs) == 0 {
		// Without it, every lock whose grants end would be found to let a user write that holds it for too long.
		if s.Base, err = s.Base.With([]string{"workload.check=validity"}); err != nil {
			return s, nil, err
		}
	}
	_, s.Stored = p.Topology.Service(nil).(topology.Store)
	s.Points = pointsOf(p.Lock.Points)
	if len(p.Programs) > 0 {
		s.Points = pointsOf(a.Announced)
	}
	s.Users = []string{"A", "B", "C"}
	s.kinds = map[string]chaos.Kind{}
	look := newSurvey(&s, p)
	for _, k := range a.Request.Catalog.Faults {
		if ctx.Err() != nil {
			return s, look.refused, ctx.Err()
		}
		s.kinds[k.Name] = k
		look.add(k)
	}
	return s, look.refused, nil
}

// bounds returns the bounds of a load with a TTL.
func bounds(ttl time.Duration) (low, high time.Duration) {
	return max(shortest, leastTTL*ttl), max(longest, mostTTL*ttl)
}

// addTTLs finds the TTLs that the lock supports, with servers like those of the plan: others could not be kept.
func (s *Space) addTTLs(p *engine.Plan) {
	for _, ttl := range usualTTLs {
		if ttl < p.Lock.MinTTL {
			continue
		}
		low, high := bounds(ttl)
		other, err := s.check(Script{For: low, TTL: ttl, Crowd: Crowd{Clients: 1, Users: 1, Locks: 1}})
		if err == nil && alike(p.Specs, other.Specs) {
			s.TTLs = append(s.TTLs, ttl)
			s.Shortest, s.Longest = min(s.Shortest, low), max(s.Longest, high)
		}
	}
	if len(s.TTLs) > 0 && !slices.Contains(s.TTLs, s.TTL) {
		s.TTLs = append(s.TTLs, s.TTL)
	}
}

// alike reports whether nodes are started in the same way.
func alike(a, b []node.Spec) bool {
	return slices.EqualFunc(a, b, func(x, y node.Spec) bool {
		return x.Name == y.Name && x.RestartDelay == y.RestartDelay && slices.Equal(x.Env, y.Env)
	})
}

// ttl returns the TTL of a script.
func (s Space) ttl(x Script) time.Duration { return cmp.Or(x.TTL, s.TTL) }

// The calls of a visit before which a point can be armed.
const (
	acquire = "acquire"
	release = "release"
	renew   = "renew"
	write   = "write"
)

// pointsOf returns the points of a lock, and those that every client announces, with the calls that pass them. A lock
// lists its points in the order of a cycle. Only the first of the acquire and of the release begin with "before-".
func pointsOf(own []string) (out []Point) {
	calls := []string{acquire, release}
	at := -1
	for _, name := range own {
		if strings.HasPrefix(name, "before-") {
			at++
		}
		out = append(out, Point{name, calls[min(max(at, 0), 1)]})
	}
	for _, p := range []Point{
		{workloads.PointAcquired, acquire},
		{workloads.PointRead, write},
		{workloads.PointWrite, write},
		{workloads.PointRelease, release},
	} {
		if !slices.ContainsFunc(out, func(x Point) bool { return x.Name == p.Name }) {
			out = append(out, p)
		}
	}
	return out
}

// check returns the plan of a run of the script, or why there can be none.
func (s Space) check(x Script) (*engine.Plan, error) {
	sc, err := s.built(x, false)
	if err != nil {
		return nil, err
	}
	r := s.request
	r.Scenario = sc
	return engine.Check(engine.Options{Request: r})
}

// Check returns why a run of the script would be rejected, or nil. It starts nothing.
func (s Space) Check(x Script) error {
	_, err := s.check(x)
	return err
}

// String describes a refused way in one line.
func (r Refused) String() string {
	if r.Keys == "" {
		return fmt.Sprintf("%s: %s", r.Fault, r.Reason)
	}
	return fmt.Sprintf("%s (%s): %s", r.Fault, r.Keys, r.Reason)
}
