package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// Space is what can be done to a lock on this machine. It is found by asking the lock, its service, the faults and the
// provider, and has no list of what is known to break.
type Space struct {
	// Base is what every try is laid over: its name, claim, backend and expectations. Its workload is none of them.
	Base   scenarios.Scenario
	TTL    time.Duration
	Faults []Fault // that can be delivered here
	Points []Point // that clients of the lock announce
	Users  []string

	Renews  bool // grants can be extended by a call
	Extends bool // grants are extended, by whatever means
	Shared  bool // the lock knows shared mode
	Dies    bool // a client can end alone
	Expires bool // grants end by themselves
	Stored  bool // the service as a whole can be asked who has a lock
	// Shortest and Longest bound the load of a run.
	Shortest, Longest time.Duration

	request engine.Request
	kinds   map[string]chaos.Kind
}

// Fault is a kind of fault in one of its ways, with the targets that it can hit here.
type Fault struct {
	Kind    chaos.Kind
	Targets []string
	OnUsers bool     // the user of a visit can be its target
	Keys    []string // alternatives, as YAML: "by: 50ms"
	Fresh   bool     // no later run can have the servers that it hit
}

// Point is one of the places where a client can be stopped.
type Point struct {
	Name   string
	Before string // the call that passes it
}

// Asked is what a hunt is about.
type Asked struct {
	// Request is that of every run. Its scenario is the Base.
	Request engine.Request
	// Announced are the points of a program that takes the place of lockquake's own client, which it tells itself.
	Announced []string
}

// Refused is a fault that cannot be delivered here, or not in one of its ways.
type Refused struct {
	Fault  string
	Keys   string
	Reason string
	Never  bool // it makes no sense for this service, on whatever machine
}

// The load of a run, and how many TTLs it has at least.
const (
	shortest = 2 * time.Second
	longest  = 6 * time.Second
	leastTTL = 2
	mostTTL  = 4
)

// NewSpace finds what can be done to the lock of the scenario. It starts nothing. refused lists, in the order of the
// catalog, what cannot be delivered, with the reason. An error is the one that a run of the scenario would end with.
func NewSpace(ctx context.Context, a Asked) (s Space, refused []Refused, err error) {
	s = Space{Base: a.Request.Scenario, TTL: a.Request.Scenario.Backend.TTL, request: a.Request}
	s.Shortest = max(shortest, leastTTL*s.TTL)
	s.Longest = max(longest, mostTTL*s.TTL)
	p, err := s.check(Script{For: s.Shortest, Crowd: Crowd{Clients: 1, Users: 1, Locks: 1}})
	if err != nil {
		return s, nil, err
	}
	o := p.Lock.Offers
	s.Renews, s.Extends, s.Shared = o.Renewal == "call", o.Renewal != "none", o.Shared && len(p.Programs) == 0
	s.Dies, s.Expires = !p.Backend.InProcess, o.Expires
	_, s.Stored = p.Topology.Service(nil).(topology.Store)
	s.Points = pointsOf(p.Lock.Points)
	if len(p.Programs) > 0 {
		s.Points = pointsOf(a.Announced)
	}
	s.Users = []string{"A", "B", "C"}
	s.kinds = map[string]chaos.Kind{}
	for _, k := range a.Request.Catalog.Faults {
		if ctx.Err() != nil {
			return s, refused, ctx.Err()
		}
		s.kinds[k.Name] = k
		refused = append(refused, s.add(p, k)...)
	}
	return s, refused, nil
}

// The calls of a visit before which a point can be armed.
const (
	acquire = "acquire"
	release = "release"
	renew   = "renew"
	write   = "write"
)

// pointsOf says which call passes each point of a lock, beside those that every client announces. A lock lists its
// points in the order of a cycle, and the first of the acquire and of the release, and no others, begin with "before-".
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
		{workloads.PointAcquired, acquire}, {workloads.PointRead, write}, {workloads.PointWrite, write},
		{workloads.PointRelease, release},
	} {
		if !slices.ContainsFunc(out, func(x Point) bool { return x.Name == p.Name }) {
			out = append(out, p)
		}
	}
	return out
}

// add adds the ways of a kind that can be delivered, and returns the others.
func (s *Space) add(p *engine.Plan, k chaos.Kind) (refused []Refused) {
	if k.Idle || k.Shell { // the one does nothing, the other whatever it is told
		return nil
	}
	servers := p.Specs.Of(node.Server)
	targets := append(chaos.Targets(p.Topology.Service(nil), servers, scenarios.DefaultLock), servers...)
	for _, keys := range waysOf(k) {
		f, err := newFault(k, keys)
		if err != nil {
			refused = append(refused, Refused{Fault: k.Name, Keys: keys, Reason: err.Error()})
			continue
		}
		if why := s.pointless(p, k, f); why != "" {
			refused = append(refused, Refused{Fault: k.Name, Keys: keys, Reason: why})
			continue
		}
		x := Fault{Kind: k, Keys: []string{keys}}
		var why error
		x.Targets, why = s.targets(k, f, keys, targets)
		x.OnUsers = slices.Contains(x.Targets, "clients")
		if len(x.Targets) == 0 {
			r := refusal(k, keys, servers, why)
			if i := slices.IndexFunc(refused, func(o Refused) bool { return o.Reason == r.Reason }); i < 0 {
				refused = append(refused, r)
			}
			continue
		}
		x.Fresh = s.spoils(k, f, x.Targets)
		s.merge(x)
	}
	return refused
}

// targets returns those targets that a way of a fault can hit, and why it cannot hit others.
func (s *Space) targets(k chaos.Kind, f chaos.Fault, keys string, of []string) (out []string, why error) {
	for _, on := range of {
		if strings.HasPrefix(on, "holder") && dawdles(k, f) {
			continue
		}
		if err := s.delivers(k, f, keys, on); err != nil {
			why = worse(why, err)
			continue
		}
		out = append(out, on)
	}
	return out, why
}

// waysOf are the alternatives of a kind's keys: those with which it is tried, and a sample of a random schedule. How
// little a target can do with is tried; a sample may leave it more than it wants.
func waysOf(k chaos.Kind) []string {
	out := slices.Clone(k.Trials())
	if k.Slows {
		return out
	}
	if sample := strings.Trim(k.Sample, "{}"); sample != "" && !slices.Contains(out, sample) {
		out = append(out, sample)
	}
	return out
}

// merge puts a way to the fault that has the same targets and cost.
func (s *Space) merge(x Fault) {
	for i, f := range s.Faults {
		if f.Kind.Name == x.Kind.Name && f.Fresh == x.Fresh && slices.Equal(f.Targets, x.Targets) {
			s.Faults[i].Keys = append(f.Keys, x.Keys...)
			return
		}
	}
	s.Faults = append(s.Faults, x)
}

// newFault makes the fault with keys, of which a range is settled to its low end.
func newFault(k chaos.Kind, keys string) (chaos.Fault, error) {
	params, err := scenarios.ParseParams("{" + keys + "}")
	if err == nil {
		params, err = params.Settle(func(int64) int64 { return 0 })
	}
	if err != nil {
		return nil, err
	}
	return k.New(params.Decode)
}

// delivers returns why a run with the fault on this target would be refused.
func (s *Space) delivers(k chaos.Kind, f chaos.Fault, keys, on string) error {
	x := Script{For: s.Shortest, Crowd: Crowd{Clients: 2, Users: 1, Locks: 1}}
	in := Injection{Use: k.Name, On: on, Keys: settled(keys), At: s.Shortest / 4}
	if k.Lasts(f) {
		in.For = s.Shortest / 4
	}
	x.Faults = []Injection{in}
	_, err := s.check(x)
	return err
}

// settled is keys with each range at its low end.
func settled(keys string) string {
	params, err := scenarios.ParseParams("{" + keys + "}")
	if err == nil {
		params, err = params.Settle(func(int64) int64 { return 0 })
	}
	if err != nil {
		return keys
	}
	return params.String()
}

// worse is the error that tells more: one about this machine, before one about the scenario.
func worse(a, b error) error {
	var missing engine.MissingError
	if a == nil || errors.As(b, &missing) && !errors.As(a, &missing) {
		return b
	}
	return a
}

// refusal says in one line why a way of a fault cannot be delivered.
func refusal(k chaos.Kind, keys string, servers []string, err error) Refused {
	r := Refused{Fault: k.Name, Keys: keys}
	var why chaos.Unavailable
	switch {
	case errors.As(err, &why):
		r.Reason, r.Never = why.Error(), why.Never
	case len(servers) == 0:
		r.Reason, r.Never = "it is for servers only, and the backend has none", true
	default:
		r.Reason = err.Error()
	}
	r.Reason = strings.ReplaceAll(r.Reason, "\n", "; ")
	return r
}

// spoils reports whether no later run can have the servers of a run with this fault.
func (s *Space) spoils(k chaos.Kind, f chaos.Fault, targets []string) bool {
	onServers := slices.ContainsFunc(targets, func(on string) bool { return on != "clients" && !strings.HasPrefix(on, "holder") })
	prepared, _ := f.(chaos.Prepared)
	damaging, _ := f.(chaos.Damaging)
	return onServers && (prepared != nil && len(prepared.Preparations()) > 0 || damaging != nil && damaging.Damages())
}

// pointless says why a fault that can be delivered would not bite here, or leave a service that never serves again.
func (s *Space) pointless(p *engine.Plan, k chaos.Kind, f chaos.Fault) string {
	l, _ := f.(chaos.Forgetful)
	forgets := l != nil && l.Forgets()
	switch {
	case k.Syncs && !s.has(p.Backend.Syncing):
		return "servers sync nothing to disk; with " + p.Backend.Syncing + " they do"
	case forgets && !p.Backend.Forgets:
		return "a server that lost its data does not serve without them"
	case forgets && !s.has(p.Backend.Durable):
		return "servers have no data that they could lose, and forget everything with their process; with " + p.Backend.Durable + " they have"
	}
	return ""
}

// dawdles reports whether the receipt of a fault needs a target that is at work. A holder is stopped until the receipt
// is there, and its lock may be over by then.
func dawdles(k chaos.Kind, f chaos.Fault) bool {
	_, linked := f.(chaos.Linked)
	c, ok := f.(chaos.Cutting)
	return k.Slows || linked && !(ok && c.Cuts())
}

// has reports whether the base has a key of the backend with a value; "" stands for nothing that it would need.
func (s *Space) has(pair string) bool {
	key, value, _ := strings.Cut(pair, ":")
	return pair == "" || slices.Contains(s.Base.Backend.Params.Keys(), key) &&
		strings.Contains(s.Base.Backend.Params.String(), strings.TrimSpace(value))
}

// check returns the plan of a run of the script, or why there can be none.
func (s Space) check(x Script) (*engine.Plan, error) {
	sc, err := s.built(x)
	if err != nil {
		return nil, err
	}
	r := s.request
	r.Scenario = sc
	return engine.Check(engine.Options{Request: r})
}

// Check returns why a run of the script would be refused, or nil. It starts nothing.
func (s Space) Check(x Script) error {
	_, err := s.check(x)
	return err
}

// Fresh reports whether a run of the script needs servers of its own, and leaves none to the next.
func (s Space) Fresh(x Script) bool {
	for _, in := range x.Faults {
		k, known := s.kinds[in.Use]
		if !known {
			continue
		}
		if f, err := newFault(k, in.Keys); err == nil && s.spoils(k, f, []string{in.On}) {
			return true
		}
	}
	return false
}

// String names a refused way in one line.
func (r Refused) String() string {
	if r.Keys == "" {
		return fmt.Sprintf("%s: %s", r.Fault, r.Reason)
	}
	return fmt.Sprintf("%s (%s): %s", r.Fault, r.Keys, r.Reason)
}
