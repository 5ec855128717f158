package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

// Due is one injection of the schedule.
type Due struct {
	At, Lasts time.Duration // since the workload was let go; lasts 0: until the end
	Inj       Injection
}

// Injection is a fault ready to be injected.
type Injection struct {
	Entry    int // index of the scenario's chaos entry or step, from 1
	Kind     chaos.Kind
	Fault    chaos.Fault
	Selector chaos.Selector
	Far      chaos.Selector // the other ends of a link fault; empty for other faults
	On       string
	As       string
	Params   string
	own      scenarios.Params // the fault's keys, to be written down
	Place    int              // in the schedule, from 1; 0: not in it
	Draws    string           // names the random stream for the other ends
	Held     time.Duration    // how long a holder must have held its lock
}

// needs lists the capabilities that the injection needs of its targets.
func (i Injection) needs() []chaos.Capability { return i.Kind.NeedsOf(i.Fault) }

// settle makes the random picks of an injection's targets, so that they can be written down.
func (i *Injection) settle(place int, sel chaos.Selector, draws string) {
	i.Place, i.Selector, i.Draws = place, sel, "peers-at-"+draws
}

// injections makes injections from a scenario's faults.
type injections struct {
	plan   *Plan
	faults []chaos.Kind
}

// faultKeys is a fault as the scenario names it.
type faultKeys struct {
	path   string // of the entry or step
	key    string // of the fault's name
	use    string
	on     string
	params scenarios.Params
}

func (p injections) make(a faultKeys) (Injection, error) {
	kind, ok := chaos.Lookup(p.faults, a.use)
	if !ok {
		return Injection{}, p.plan.wrong(a.path+"."+a.key, "there is no fault %q; there are %s", a.use,
			names(p.faults, func(k chaos.Kind) string { return k.Name }))
	}
	inj := Injection{Kind: kind, On: a.on, Params: a.params.String(), own: a.params}
	var err error
	if inj.Fault, err = inj.Kind.New(a.params.Decode); err != nil {
		return Injection{}, p.plan.placed(a.path, err)
	}
	if inj.Selector, err = p.target(a.on); err != nil {
		return Injection{}, p.plan.placed(a.path+".on", err)
	}
	if err := p.checkServers(inj); err != nil {
		return Injection{}, p.plan.placed(a.path+".on", err)
	}
	if why := p.aim(inj.Kind, inj.Selector); why != "" {
		return Injection{}, p.plan.wrong(a.path+".on", "%s", why)
	}
	if err := p.checkLinks(&inj); err != nil {
		return Injection{}, p.plan.placed(a.path, err)
	}
	return inj, nil
}

// target reads a target.
func (p injections) target(on string) (chaos.Selector, error) {
	return chaos.ParseSelector(strings.Join(p.nodesOf(strings.Split(on, ",")), ","), p.plan.Specs.Names())
}

// nodesOf replaces the users that steps name by their clients.
func (p injections) nodesOf(names []string) []string {
	var out []string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if k := slices.Index(p.plan.StepUsers, name); k >= 0 {
			name = p.plan.StepUserNode(k)
		}
		out = append(out, name)
	}
	return out
}

// aim returns why a fault can never hit this target, or "".
func (p injections) aim(k chaos.Kind, on chaos.Selector) string {
	return k.Aim(on, p.plan.Topology.Service(nil), p.plan.Specs.Of(node.Server), p.plan.Specs.Of(node.Client))
}

// checkServers rejects a target that may pick another node than a server, for faults that are for servers only.
func (p injections) checkServers(inj Injection) error {
	for _, s := range p.plan.Specs.picks(inj.Selector) {
		if inj.Kind.Servers && s.Role != node.Server {
			return fmt.Errorf("%s may hit %s, a %s, but applies only to servers", inj.Kind.Name, s.Name, s.Role)
		}
	}
	return nil
}

// checkLinks reads the other end of a link fault, and checks that the named ports exist.
func (p injections) checkLinks(inj *Injection) error {
	l, ok := inj.Fault.(chaos.Linked)
	if !ok {
		return nil
	}
	var err error
	if inj.Far, err = chaos.ParseFar(p.nodesOf(l.Far()), p.plan.Specs.Names()); err != nil {
		return err
	}
	own, far := l.Ports()
	if err := p.checkPort(own, inj.Selector); err != nil {
		return err
	}
	return p.checkPort(far, inj.Far)
}

// checkPort checks that all nodes that a selector may pick have a port of that name.
func (p injections) checkPort(port chaos.PortName, of chaos.Selector) error {
	if _, ok := port.Number(); ok || port == "" {
		return nil
	}
	for _, s := range p.plan.Specs.picks(of) {
		if !slices.ContainsFunc(s.Ports, func(x node.Port) bool { return x.Name == string(port) }) {
			return fmt.Errorf("%s may be at that end of a link, but has no port %q; it has %s", s.Name, port,
				names(s.Ports, func(x node.Port) string { return x.Name }))
		}
	}
	return nil
}
