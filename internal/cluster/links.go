package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// Links is the part of a node for link faults.
type Links struct {
	part
}

// Filter makes the agent install packet filter rules in the node's network namespace.
func (l *Links) Filter(ctx context.Context, key string, rules []links.Rule) error {
	return l.filter(ctx, key, links.FilterArgs{Rules: rules})
}

// filter sends a standing order to filter or shape packets.
func (l *Links) filter(ctx context.Context, key string, args links.FilterArgs) (err error) {
	if external(l.driver) {
		return nil // the rules at the other end suffice
	}
	if args.Rules, err = l.addressed(args.Rules); err != nil {
		return err
	}
	return l.orders.apply(ctx, agent.Order{Do: links.DoFilter, Key: l.orders.key(key), Args: args}, nil)
}

// addressed fills in the addresses of the rules' peers.
func (l *Links) addressed(rules []links.Rule) ([]links.Rule, error) {
	out := slices.Clone(rules)
	for i, r := range out {
		host, err := ownHost(l.place, r.Node)
		if err != nil {
			return nil, err
		}
		out[i].Peer = host
	}
	return out, nil
}

// ownHost returns a node's own address.
func ownHost(place node.Place, name string) (string, error) {
	host := place.Host(name)
	if a, err := netip.ParseAddr(host); err != nil || a.IsLoopback() {
		return "", chaos.Unavailable{What: string(links.CanFilter), Reason: name + " has no address of its own"}
	}
	return host, nil
}

// Unfilter removes rules and reports what is left.
func (l *Links) Unfilter(ctx context.Context, key string) (links.Filtered, error) {
	var f links.Filtered
	if external(l.driver) {
		return f, nil
	}
	err := l.orders.takeBack(ctx, l.orders.key(key), &f)
	return f, err
}

// Filtered returns what rules have met. Rules of a node that never ran have met nothing.
func (l *Links) Filtered(ctx context.Context, key string) (links.Filtered, error) {
	if !slices.ContainsFunc(l.orders.list(),
		func(s standingOrder) bool { return s.order.Key == l.orders.key(key) && s.given }) {
		return links.Filtered{}, nil
	}
	var f links.Filtered
	err := l.orders.order(ctx, agent.Order{Do: links.DoFiltered, Args: l.orders.key(key)}, &f)
	return f, err
}

// Connections makes the agent list the node's established connections with peers.
func (l *Links) Connections(ctx context.Context, peers []chaos.Node, own uint16,
	far []uint16,
) ([]links.Connection, error) {
	var rules []links.Rule
	for i, p := range peers {
		rules = append(rules, links.Rule{Node: p.Name(), Port: own, PeerPort: far[i]})
	}
	rules, err := l.addressed(rules)
	if err != nil {
		return nil, err
	}
	var out []links.Connection
	err = l.orders.order(ctx, agent.Order{Do: links.DoConnections, Args: links.ConnectionsArgs{With: rules}}, &out)
	for i, c := range out {
		out[i].Node = rules[slices.IndexFunc(rules, func(r links.Rule) bool { return r.Peer == c.Peer })].Node
	}
	return out, err
}

// Reset makes the agent end connections of the node.
func (l *Links) Reset(ctx context.Context, those []links.Connection) (links.Ended, error) {
	ctx, done := clock.Act(ctx)
	defer done()
	var ended links.Ended
	err := l.orders.order(ctx, agent.Order{Do: links.DoReset, Args: those}, &ended)
	return ended, err
}

// Port returns the number of a named port.
func (l *Links) Port(name string) (int, bool) {
	i := slices.IndexFunc(l.spec.Ports, func(p node.Port) bool { return p.Name == name })
	if i < 0 {
		return 0, false
	}
	return l.spec.Ports[i].Number, true
}

// ProbeLinks makes the agent send datagrams over the node's links, between its own sockets in the namespaces at both
// ends. A peer without a process has no end to send from.
func (l *Links) ProbeLinks(ctx context.Context, peers []chaos.Node, p links.ProbeArgs) (links.ProbeResult,
	error,
) {
	if len(l.spec.Ports) > 0 {
		p.Control = l.place.Address(l.Name(), l.spec.Ports[0].Name)
	}
	var answer, out links.ProbeResult
	own, far := p.ProbeEnd, slices.Clone(p.Peers)
	missing, err := l.overLinks(ctx, peers, linkOrder{
		do: links.DoProbe, own: &p.ProbeEnd, far: &p.Peers, args: &p,
		within: p.Patience, answer: &answer,
	})
	if err != nil {
		return out, err
	}
	if out.Peers, err = inPlace(answer.Peers, missing, func(s *links.Seen) { s.Missing = true }); err != nil {
		return out, err
	}
	out.Self, out.Control = answer.Self, answer.Control
	if !answer.Self {
		out.Control = "not even a datagram to itself arrives"
	}
	shaken, err := l.shake(ctx, peers, links.ShakeArgs{
		Count: probeShakes, Every: probeShakeEvery,
		Patience: p.Patience,
	}, own, far)
	for i, f := range shaken {
		a := links.Arrival{Arrived: f.Arrived > 0, After: f.Round.Low, Sent: f.Sent}
		switch {
		case !p.DialOut:
		case f.Refused == f.Sent:
			a.Dial = links.Refused
		case f.Arrived > 0:
			a.Dial = links.Connected
		default:
			a.Dial = links.Silent
		}
		out.Peers[i] = links.Seen{Shake: &a}
	}
	return out, err
}

const (
	// probeShakes is how many connections show whether a link to an external server is cut.
	probeShakes     = 5
	probeShakeEvery = 20 * time.Millisecond
	// shakeMost is the maximum number of connections to such a server, and shakeFew if a few suffice.
	shakeMost  = 200
	shakeFew   = 30
	shakeBurst = 5
	// shakeEvery is the time between two of them, and shakeBehind if each waits for a burst to leave.
	shakeEvery  = 2 * time.Millisecond
	shakeBehind = 500 * time.Millisecond
)

// shake makes the agent open connections to the external peers, and returns the results by the index of the peer. It
// cannot show faults limited to one of the node's own ports.
func (l *Links) shake(ctx context.Context, peers []chaos.Node, args links.ShakeArgs, own links.ProbeEnd,
	far []links.ProbeEnd,
) (map[int]links.Flow, error) {
	var places []int
	for i, n := range peers {
		peer, ok := chaos.As[*Links](n)
		if !ok || !external(peer.driver) || own.Port != 0 {
			continue
		}
		host, err := ownHost(peer.place, peer.Name())
		if err != nil {
			return nil, err
		}
		port := cmp.Or(int(far[i].Port), peer.spec.Ports[0].Number)
		args.OnPort = args.OnPort || far[i].Port != 0
		places, args.Peers = append(places, i), append(args.Peers, net.JoinHostPort(host, strconv.Itoa(port)))
	}
	if len(places) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(args.Count)*args.Every+args.Patience+probeGrace)
	defer cancel()
	var answer links.Shaken
	if err := l.orders.order(ctx, agent.Order{Do: links.DoShake, Args: args}, &answer); err != nil {
		return nil, err
	}
	out := map[int]links.Flow{}
	for i, f := range answer.Peers {
		out[places[i]] = f
	}
	return out, nil
}

// linkOrder is an order to send datagrams between a node and its peers.
type linkOrder struct {
	do     string
	own    *links.ProbeEnd   // in args
	far    *[]links.ProbeEnd // likewise
	args   interface{ Plan() links.Plan }
	within time.Duration // its duration, without opening sockets
	answer interface {
		Take(p links.Plan, s links.Sight)
	}
}

// missingEnd says whether a peer had no end to send from, at the beginning or until the end.
type missingEnd struct{ before, after bool }

// overLinks fills in the addresses of the ends and carries out the plan with the peers that have a process. The node's
// agent does it alone if it is theirs too.
func (l *Links) overLinks(ctx context.Context, peers []chaos.Node, o linkOrder) ([]missingEnd, error) {
	host, err := ownHost(l.place, l.Name())
	if err != nil {
		return nil, err
	}
	if !l.process.Running() {
		return nil, fmt.Errorf("%s: %w", l.Name(), proc.ErrNoProcess)
	}
	ctx, cancel := context.WithTimeout(ctx, o.within+probeGrace)
	defer cancel()
	last, out := lasting(l.process, peers), make([]missingEnd, len(peers))
	o.own.Address = host
	var far []links.ProbeEnd
	ends := []reachedEnd{{node: l.Name()}}
	for i, peer := range peers {
		through, host, err := probedEnd(ctx, peer)
		if out[i].before = err != nil; err == nil {
			ends, far = append(ends, reachedEnd{peer.Name(), through}),
				append(far, links.ProbeEnd{Address: host, Port: (*o.far)[i].Port})
		}
	}
	*o.far = far
	if o.do == links.DoMeasure && len(far) == 0 {
		return out, nil // nothing to measure
	}
	if ends[0].throughAgent, err = l.orders.reach(ctx); err != nil {
		return nil, err
	}
	if err := l.carryOut(ctx, o, ends); err != nil {
		return nil, err
	}
	if !last[0]() {
		return nil, fmt.Errorf("%s ended while its links were measured: %w", l.Name(), proc.ErrNoProcess)
	}
	for i := range out {
		out[i].after = !last[i+1]()
	}
	return out, nil
}

// carryOut sends the order to the node's agent, or the parts of its plan to the agents that own the ends.
func (l *Links) carryOut(ctx context.Context, o linkOrder, ends []reachedEnd) error {
	order := agent.Order{Do: o.do, Args: o.args}
	for _, e := range ends[1:] {
		if e.agent != ends[0].agent {
			plan := o.args.Plan()
			seen, err := bySides(ctx, plan, ends)
			if err != nil {
				return fmt.Errorf("%s of %s, by several agents: %w", o.do, l.Name(), err)
			}
			o.answer.Take(plan, seen)
			return nil
		}
		order.With = append(order.With, e.process)
	}
	return l.orders.order(ctx, order, o.answer)
}

// inPlace maps the agent's answers, which cover the peers with a process, to all peers, and marks the missing ones.
func inPlace[T any](answers []T, peers []missingEnd, mark func(*T)) ([]T, error) {
	out := make([]T, len(peers))
	for i, p := range peers {
		if !p.before {
			if len(answers) == 0 {
				return nil, errors.New("the agent answered for fewer links than requested")
			}
			out[i], answers = answers[0], answers[1:]
		}
		if p.before || p.after {
			mark(&out[i])
		}
	}
	return out, nil
}

// lasting returns the result of lasts for a node and then for each of its peers.
func lasting(p *Process, peers []chaos.Node) []func() bool {
	out := []func() bool{p.lasts()}
	for _, n := range peers {
		if peer, ok := chaos.As[*Process](n); ok {
			out = append(out, peer.lasts())
		} else {
			out = append(out, func() bool { return false })
		}
	}
	return out
}

// probedEnd returns what a probe needs of the node at the other end: its agent's access to its process, and its
// address.
func probedEnd(ctx context.Context, n chaos.Node) (throughAgent, string, error) {
	peer, ok := chaos.As[*Links](n)
	if !ok {
		return throughAgent{}, "", fmt.Errorf("%s is not a node of this run", n.Name())
	}
	if !peer.process.Running() {
		return throughAgent{}, "", proc.ErrNoProcess
	}
	host, err := ownHost(peer.place, peer.Name())
	if err != nil {
		return throughAgent{}, "", err
	}
	a, err := peer.orders.reach(ctx)
	return a, host, err
}

// Engines makes the agent try which engines shape links here.
func (l *Links) Engines(ctx context.Context) (links.Engines, error) {
	a, err := l.orders.reach(ctx)
	if err != nil {
		return nil, err
	}
	var e links.Engines
	err = a.agent.Order(ctx, agent.Order{Do: links.DoEngines}, &e)
	return e, err
}

// Shape makes the agent shape packets between the node and others.
func (l *Links) Shape(ctx context.Context, key string, rules []links.Rule, s links.Shaping) error {
	return l.filter(ctx, key, links.FilterArgs{Rules: rules, Shaping: &s})
}

// MeasureLinks makes the agent send numbered datagrams over the node's links.
func (l *Links) MeasureLinks(ctx context.Context, peers []chaos.Node, m links.MeasureArgs) ([]links.MeasuredLink,
	error,
) {
	var answer links.Measured
	own, far := m.ProbeEnd, slices.Clone(m.Peers) // overLinks fills in the known ones
	within := time.Duration(m.Count)*m.Every + m.Patience
	missing, err := l.overLinks(ctx, peers, linkOrder{
		do: links.DoMeasure, own: &m.ProbeEnd, far: &m.Peers, args: &m,
		within: within, answer: &answer,
	})
	if err != nil {
		return nil, err
	}
	out, err := inPlace(answer.Peers, missing, func(l *links.MeasuredLink) { l.Missing = true })
	if err != nil {
		return nil, err
	}
	args := links.ShakeArgs{
		Count: min(m.Count, shakeMost), Every: max(m.Every, shakeEvery), Patience: m.Patience,
		Burst: m.Burst,
	}
	switch {
	case m.Burst > 0:
		args.Count, args.Every = shakeBurst, shakeBehind
	case m.Echo:
		args.Count = min(args.Count, shakeFew)
	}
	shaken, err := l.shake(ctx, peers, args, own, far)
	for i, f := range shaken {
		out[i] = links.MeasuredLink{Shake: &f}
	}
	return out, err
}
