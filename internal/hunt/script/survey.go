package script

import (
	"errors"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

// survey determines the faults of a space.
type survey struct {
	space   *Space
	plan    *engine.Plan
	servers []string
	targets []string
	refused []Refused
}

func newSurvey(s *Space, p *engine.Plan) *survey {
	l := &survey{space: s, plan: p, servers: p.Specs.Of(node.Server)}
	l.targets = append(chaos.Targets(p.Topology.Service(nil), l.servers, scenarios.DefaultLock), l.servers...)
	return l
}

// add adds the ways of a kind that can be delivered, and records the others as refused.
func (l *survey) add(k chaos.Kind) {
	if k.Idle || k.Shell { // the one does nothing, the other runs any command
		return
	}
	for _, keys := range waysOf(k) {
		f, err := newFault(k, keys)
		if err != nil {
			l.refuse(Refused{Fault: k.Name, Keys: keys, Reason: err.Error()})
			continue
		}
		if why := l.pointless(k, f); why != "" {
			l.refuse(Refused{Fault: k.Name, Keys: keys, Reason: why})
			continue
		}
		x := Fault{Kind: k, Keys: []string{keys}}
		var why error
		if x.Targets, why = l.reached(k, f, keys); len(x.Targets) == 0 {
			l.refuse(l.refusal(k, keys, why))
			continue
		}
		x.OnUsers, x.Fresh = slices.Contains(x.Targets, "clients"), spoils(f, x.Targets)
		l.merge(x)
	}
}

// refuse records what cannot be delivered. It joins ways of a fault with the same reason.
func (l *survey) refuse(r Refused) {
	if !slices.ContainsFunc(l.refused, func(o Refused) bool { return o.Fault == r.Fault && o.Reason == r.Reason }) {
		l.refused = append(l.refused, r)
	}
}

// reached returns the targets that a way of a fault can hit, and why it cannot hit others.
func (l *survey) reached(k chaos.Kind, f chaos.Fault, keys string) (out []string, why error) {
	for _, on := range l.targets {
		if onHolder(on) && dawdles(k, f) || onClients(on) && k.Syncs {
			continue
		}
		if err := l.delivers(k, f, keys, on); err != nil {
			why = worse(why, err)
			continue
		}
		out = append(out, on)
	}
	return out, why
}

// waysOf returns the alternatives of a kind's keys: those with which doctor tries it, and a sample of a random
// schedule. The former show how little a target can cope with; a sample may leave it more than it uses.
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

// merge adds a way to the fault with the same targets and cost.
func (l *survey) merge(x Fault) {
	s := l.space
	for i, f := range s.Faults {
		if f.Kind.Name == x.Kind.Name && f.Fresh == x.Fresh && slices.Equal(f.Targets, x.Targets) {
			s.Faults[i].Keys = slices.Concat(f.Keys, x.Keys)
			return
		}
	}
	s.Faults = append(s.Faults, x)
}

// newFault makes the fault with keys; a range is replaced by its low end.
func newFault(k chaos.Kind, keys string) (chaos.Fault, error) {
	params, err := settle(keys, lowest)
	if err != nil {
		return nil, err
	}
	return k.New(params.Decode)
}

// delivers returns why a run with the fault on this target would be rejected.
func (l *survey) delivers(k chaos.Kind, f chaos.Fault, keys, on string) error {
	s := l.space
	x := Script{For: s.Shortest, Crowd: Crowd{Clients: 2, Users: 1, Locks: 1}}
	in := Injection{Use: k.Name, On: on, Keys: settled(keys, lowest), At: s.Shortest / 4}
	if k.Lasts(f) {
		in.For = s.Shortest / 4
	}
	x.Faults = []Injection{in}
	return s.Check(x)
}

// worse returns the more informative error: one about this machine rather than one about the scenario.
func worse(a, b error) error {
	var missing engine.MissingError
	if a == nil || errors.As(b, &missing) && !errors.As(a, &missing) {
		return b
	}
	return a
}

// refusal says in one line why a way of a fault cannot be delivered.
func (l *survey) refusal(k chaos.Kind, keys string, err error) Refused {
	r := Refused{Fault: k.Name, Keys: keys}
	var why chaos.Unavailable
	switch {
	case errors.As(err, &why):
		r.Reason, r.Never = why.Error(), why.Never
	case len(l.servers) == 0:
		r.Reason, r.Never = "it is for servers only, and the backend has none", true
	default:
		r.Reason = err.Error()
	}
	r.Reason = strings.ReplaceAll(r.Reason, "\n", "; ")
	return r
}

// spoils reports whether the servers of a run with this fault cannot be used by later runs.
func spoils(f chaos.Fault, targets []string) bool {
	onServers := slices.ContainsFunc(targets, func(on string) bool { return !onClients(on) })
	prepared, _ := f.(chaos.Prepared)
	damaging, _ := f.(chaos.Damaging)
	return onServers && (prepared != nil && len(prepared.Preparations()) > 0 || damaging != nil && damaging.Damages())
}

// pointless says why a fault that can be delivered would not bite here, or would leave a service that never recovers.
func (l *survey) pointless(k chaos.Kind, f chaos.Fault) string {
	p := l.plan
	x, _ := f.(chaos.Forgetful)
	forgets := x != nil && x.Forgets()
	switch {
	case k.Syncs && !l.has(p.Backend.Syncing):
		return "servers sync nothing to disk; with " + p.Backend.Syncing + " they do"
	case forgets && !p.Backend.Forgets:
		return "a server that lost its data does not serve without them"
	case forgets && !l.has(p.Backend.Durable):
		return "servers keep no data that they could lose: all is gone with their process; with " + p.Backend.Durable +
			" they do"
	}
	return ""
}

// dawdles reports whether the receipt of a fault needs a target that is at work. A holder is stopped until the
// receipt is complete, and its lock may be over by then.
func dawdles(k chaos.Kind, f chaos.Fault) bool {
	_, linked := f.(chaos.Linked)
	c, ok := f.(chaos.Cutting)
	return k.Slows || linked && !(ok && c.Cuts())
}

// has reports whether the base sets a key of the backend to a value. The empty pair is always there.
func (l *survey) has(pair string) bool {
	own := l.space.Base.Backend.Params
	key, value, _ := strings.Cut(pair, ":")
	return pair == "" || slices.Contains(own.Keys(), key) &&
		strings.Contains(own.String(), strings.TrimSpace(value))
}
