package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
)

var (
	_ chaos.Filterer   = (*Node)(nil)
	_ chaos.LinkProber = (*Node)(nil)
	_ chaos.Ported     = (*Node)(nil)
)

// standingOrder is an order on the node's links or clock that outlasts its processes: it is given again for each that is started.
type standingOrder struct {
	order agent.Order
	given bool // to the agent, which owes an undo
}

// Filter puts up packet filter rules in the node's network namespace, by way of the agent.
func (n *Node) Filter(ctx context.Context, key string, rules []chaos.LinkRule) error {
	args, err := agentRules(rules)
	if err != nil {
		return err
	}
	return n.stand(ctx, agent.Order{Do: agent.DoFilter, Key: n.linkKey(key), Args: args}, nil)
}

// agentRules names the peers by their addresses.
func agentRules(rules []chaos.LinkRule) (agent.FilterArgs, error) {
	var args agent.FilterArgs
	for _, r := range rules {
		peer, ok := r.Peer.(*Node)
		if !ok {
			return args, fmt.Errorf("%s is no node of this run", r.Peer.Name())
		}
		host, err := peer.host()
		if err != nil {
			return args, err
		}
		args.Rules = append(args.Rules, agent.Rule{
			Peer: host, Out: r.Out, Port: uint16(r.Port), PeerPort: uint16(r.PeerPort), How: r.How,
		})
	}
	return args, nil
}

// linkKey makes the key of an order out of one that is unique in the run: nodes can share a fault.
func (n *Node) linkKey(key string) string { return key + "/" + n.Name() }

// host returns the node's own address.
func (n *Node) host() (string, error) {
	host := n.place.Host(n.Name())
	if a, err := netip.ParseAddr(host); err != nil || a.IsLoopback() {
		return "", chaos.Unavailable{What: string(chaos.CanFilter), Reason: n.Name() + " has no address of its own"}
	}
	return host, nil
}

// stand gives an order that stands until fall: now, if the node runs, and again whenever it is started.
func (n *Node) stand(ctx context.Context, o agent.Order, result any) error {
	n.linking.Lock()
	defer n.linking.Unlock()
	s := &standingOrder{order: o}
	n.orders = append(n.orders, s)
	if !n.Running() {
		return nil
	}
	if _, err := n.reach(ctx); err != nil {
		return err
	}
	s.given = true // from before its first effect
	return n.order(ctx, o, result)
}

// amend changes what an order that stands says to the processes that are started from now on.
func (n *Node) amend(key string, args any) {
	n.linking.Lock()
	defer n.linking.Unlock()
	for _, s := range n.orders {
		if s.order.Key == key {
			s.order.Args = args
		}
	}
}

// standAgain gives the orders that stand for the process that was just started.
func (n *Node) standAgain(ctx context.Context) error {
	n.linking.Lock()
	defer n.linking.Unlock()
	var errs []error
	for _, s := range n.orders {
		s.given = true
		errs = append(errs, n.order(ctx, s.order, nil))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s runs, but the faults that stand on its links, clock and disk were not put up again: %w", n.Name(), err)
	}
	return nil
}

// fall ends an order that stands, and has the agent undo it.
func (n *Node) fall(ctx context.Context, key string, result any) error {
	n.linking.Lock()
	defer n.linking.Unlock()
	i := slices.IndexFunc(n.orders, func(s *standingOrder) bool { return s.order.Key == key })
	if i < 0 {
		return nil
	}
	s := n.orders[i]
	n.orders = slices.Delete(n.orders, i, i+1)
	if !s.given {
		return nil
	}
	return n.undo(ctx, key, result)
}

// Unfilter takes rules down and looks at what is left.
func (n *Node) Unfilter(ctx context.Context, key string) (chaos.LinkCount, error) {
	var f agent.Filtered
	err := n.fall(ctx, n.linkKey(key), &f)
	return linkCount(f), err
}

// Filtered asks what rules have met. Those of a node that never ran have met nothing.
func (n *Node) Filtered(ctx context.Context, key string) (chaos.LinkCount, error) {
	n.linking.Lock()
	i := slices.IndexFunc(n.orders, func(s *standingOrder) bool { return s.order.Key == n.linkKey(key) && s.given })
	n.linking.Unlock()
	if i < 0 {
		return chaos.LinkCount{}, nil
	}
	var f agent.Filtered
	err := n.order(ctx, agent.Order{Do: agent.DoFiltered, Args: n.linkKey(key)}, &f)
	return linkCount(f), err
}

func linkCount(f agent.Filtered) chaos.LinkCount {
	return chaos.LinkCount{Packets: f.Packets, Held: f.Held, Left: f.Left, Others: f.Others, Shaped: shapedBy(f.Shaped)}
}

// Port returns the number of a named port.
func (n *Node) Port(name string) (int, bool) {
	i := slices.IndexFunc(n.spec.Ports, func(p Port) bool { return p.Name == name })
	if i < 0 {
		return 0, false
	}
	return n.spec.Ports[i].Number, true
}

// probeGrace is what a probe is given beside its patience: to open its sockets, and to dial.
const probeGrace = 5 * time.Second

// ProbeLinks has the agent send datagrams over the node's links, between sockets of its own in the namespaces at both ends. A
// peer without a process has no end to send from.
func (n *Node) ProbeLinks(ctx context.Context, p chaos.LinkProbe) (chaos.LinksSeen, error) {
	host, err := n.host()
	if err != nil {
		return chaos.LinksSeen{}, err
	}
	if !n.Running() {
		return chaos.LinksSeen{}, fmt.Errorf("%s: %w", n.Name(), agent.ErrNoProcess)
	}
	ctx, cancel := context.WithTimeout(ctx, p.Patience+probeGrace)
	defer cancel()
	args := agent.ProbeArgs{
		ProbeEnd: agent.ProbeEnd{Address: host, Port: uint16(p.Port)}, Patience: p.Patience, DialOut: p.DialOut, DialIn: p.DialIn,
	}
	if len(n.spec.Ports) > 0 {
		args.Control = n.Address(n.spec.Ports[0].Name)
	}
	order := agent.Order{Do: agent.DoProbe}
	var out chaos.LinksSeen
	last := lasting(n, p.Peers)
	for _, peer := range p.Peers {
		process, end, err := probedEnd(ctx, peer)
		out.Peers = append(out.Peers, chaos.LinkSeen{Peer: peer, Missing: err != nil})
		if err == nil {
			end.Port = uint16(p.PeerPort[peer])
			order.With, args.Peers = append(order.With, process), append(args.Peers, end)
		}
	}
	order.Args = args
	var answer agent.ProbeResult
	if err := n.order(ctx, order, &answer); err != nil {
		return chaos.LinksSeen{}, err
	}
	next := 0
	for i := range out.Peers {
		if !out.Peers[i].Missing {
			out.Peers[i].Out, out.Peers[i].In = arrival(answer.Peers[next].Out), arrival(answer.Peers[next].In)
			next++
		}
		out.Peers[i].Missing = out.Peers[i].Missing || !last[i+1]()
	}
	if !last[0]() {
		return chaos.LinksSeen{}, endedMeanwhile(n)
	}
	out.Control = answer.Control
	if !answer.Self {
		out.Control = "not even a datagram to itself arrives"
	}
	return out, nil
}

// lasting is lasts of a node, and then of each of its peers.
func lasting(n *Node, peers []chaos.Node) []func() bool {
	out := []func() bool{n.lasts()}
	for _, p := range peers {
		if peer, ok := p.(*Node); ok {
			out = append(out, peer.lasts())
		} else {
			out = append(out, func() bool { return false })
		}
	}
	return out
}

func endedMeanwhile(n *Node) error {
	return fmt.Errorf("%s ended while its links were looked at: %w", n.Name(), agent.ErrNoProcess)
}

// probedEnd returns what a probe needs of the node at the other end.
func probedEnd(ctx context.Context, n chaos.Node) (agent.Process, agent.ProbeEnd, error) {
	peer, ok := n.(*Node)
	if !ok {
		return agent.Process{}, agent.ProbeEnd{}, fmt.Errorf("%s is no node of this run", n.Name())
	}
	if !peer.Running() {
		return agent.Process{}, agent.ProbeEnd{}, agent.ErrNoProcess
	}
	host, err := peer.host()
	if err != nil {
		return agent.Process{}, agent.ProbeEnd{}, err
	}
	hand, err := peer.reach(ctx)
	return hand.process, agent.ProbeEnd{Address: host}, err
}

func arrival(a agent.Arrival) chaos.Arrival {
	return chaos.Arrival{
		Arrived: a.Arrived, After: a.After, Sent: a.Sent, Refused: a.Dial == agent.Refused, Dial: a.Dial, Took: a.Took,
	}
}
