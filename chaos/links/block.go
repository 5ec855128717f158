package links

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// block is one injection of a fault that keeps packets from arriving, with rules in the network namespaces of nodes.
//
// Example: a partition of etcd-1 from etcd-2 has four rules. etcd-1 drops what it sends to etcd-2 and what arrives from
// it, and etcd-2 does the same. Before and after, the agent sends datagrams between the two namespaces, from its own
// sockets. They arrived before and none arrives now, while a dial inside the namespace of etcd-1 still reaches its
// server: installed.
type block struct {
	fault     string // its name
	key       string
	scope     chaos.Scope
	direction Direction
	through   Through
	how       string

	targets []linked
	lanes   []chaos.Lane      // those that it acts on
	rules   map[string][]Rule // by node
	at      []filterable      // the nodes whose rules must be undone
	before  map[string]ProbeResult
	since   int64            // clock.Now before the first probe
	noted   *chaos.LinkFault // in scope.LinkFaults
}

// filterable is a node that takes filter rules.
type filterable interface {
	chaos.Node
	Filterer
}

// linked is a target of a link fault.
type linked interface {
	filterable
	LinkProber
}

const (
	probePatience = 2 * time.Second        // for expected datagrams
	probeSilence  = 100 * time.Millisecond // for blocked datagrams, if they took less than a quarter of it before
)

// leaving returns the rule at the sender of a lane.
func leaving(l chaos.Lane, how string) Rule {
	return Rule{Node: l.To.Name(), Out: true, Port: uint16(l.FromPort), PeerPort: uint16(l.ToPort), How: how}
}

// arriving returns the rule at the receiver of a lane.
func arriving(l chaos.Lane, how string) Rule {
	return Rule{Node: l.From.Name(), Port: uint16(l.ToPort), PeerPort: uint16(l.FromPort), How: how}
}

// rule adds a rule at a node, if the node takes rules.
func (b *block) rule(at chaos.Node, r Rule) {
	f, ok := chaos.As[filterable](at)
	if !ok {
		return
	}
	if b.rules[f.Name()] == nil {
		b.at = append(b.at, f)
	}
	b.rules[f.Name()] = append(b.rules[f.Name()], r)
}

// inject probes the links, installs the rules that cut adds for each lane, and probes again.
func (b *block) inject(ctx context.Context, cut func(chaos.Lane)) (chaos.Heal, history.Receipt, error) {
	var err error
	if b.targets, err = chaos.Capable[linked](b.scope.On, CanFilter); err == nil {
		err = b.plan(cut)
	}
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	b.since = clock.Now()
	b.before = b.probe(ctx, probePatience)
	failed := b.install(ctx)
	after := b.probe(ctx, b.silence())
	if b.scope.Run != nil {
		b.scope.Run.Counts(b.counter(ctx))
	}
	var met Filtered
	receipt, err := chaos.OnEach(b.targets, func(t linked) (history.Receipt, error) {
		return b.judge(t, after[t.Name()])
	})
	if met, err = b.sum(ctx, err); met.Packets > 0 {
		receipt.Evidence += fmt.Sprintf("; the rules matched %d packets", met.Packets)
	}
	if b.how == Hold {
		receipt.Evidence += fmt.Sprintf("; %d wait in the kernel's queue", met.Held)
		if met.Held == 0 && receipt.Status == history.Installed {
			receipt.Status = history.NotInstalled
		}
	}
	return b.heal, receipt, errors.Join(failed, err)
}

// plan lists the lanes, and makes their rules.
func (b *block) plan(cut func(chaos.Lane)) error {
	b.key, b.rules = linkKey(b.fault), make(map[string][]Rule)
	if len(b.scope.Peers) == 0 {
		return errors.New("the links have no other end")
	}
	for _, t := range b.targets {
		if _, err := b.through.Port.At(t); err != nil {
			return err
		}
		for _, p := range b.scope.Peers {
			if _, err := b.through.PeerPort.At(p); err != nil {
				return err
			}
			for _, outward := range []bool{true, false} {
				if outward && b.direction.out() || !outward && b.direction.in() {
					b.lanes = append(b.lanes, b.lane(t, p, outward))
				}
			}
		}
	}
	for _, l := range b.lanes {
		cut(l)
	}
	if len(b.at) == 0 {
		return chaos.Unavailable{What: string(CanHold), Reason: "packets can be held at none of the receivers"}
	}
	return nil
}

// lane returns one direction of the link between a target and a peer, on the selected ports.
func (b *block) lane(target, peer chaos.Node, outward bool) chaos.Lane {
	own, _ := b.through.Port.At(target) // plan has checked that the ports exist
	far, _ := b.through.PeerPort.At(peer)
	if outward {
		return chaos.Lane{From: target, To: peer, FromPort: own, ToPort: far}
	}
	return chaos.Lane{From: peer, To: target, FromPort: far, ToPort: own}
}

// note records in LinkFaults that rules are about to be installed.
func (b *block) note() {
	b.noted = b.scope.LinkFaults.Add(b.fault+" on "+chaos.NamesOf(b.targets), b.lanes)
}

// install installs all rules concurrently.
func (b *block) install(ctx context.Context) error {
	b.note()
	return chaos.AtAll(b.at, func(f filterable) error { return f.Filter(ctx, b.key, b.rules[f.Name()]) })
}

// probe sends datagrams over all links of all targets. The result of a target that could not be probed has no peers,
// and the reason in Control.
func (b *block) probe(ctx context.Context, patience time.Duration) map[string]ProbeResult {
	var mu sync.Mutex
	seen := make(map[string]ProbeResult)
	_ = chaos.AtAll(b.targets, func(t linked) error {
		waited := clock.Waits(ctx, patience)
		s, err := t.ProbeLinks(ctx, b.scope.Peers, b.ask(t, patience))
		waited()
		if err != nil {
			s = ProbeResult{Control: err.Error()}
		}
		mu.Lock()
		defer mu.Unlock()
		seen[t.Name()] = s
		return nil
	})
	return seen
}

func (b *block) ask(t chaos.Node, patience time.Duration) ProbeArgs {
	p := ProbeArgs{Patience: patience}
	p.ProbeEnd, p.Peers = b.ends(t)
	if b.how == Reject && b.through == (Through{}) {
		p.DialOut, p.DialIn = b.direction.out(), b.direction.in()
	}
	return p
}

// ends returns the ports at the target's end and at its peers' ends.
func (b *block) ends(t chaos.Node) (own ProbeEnd, peers []ProbeEnd) {
	port := func(name chaos.PortName, n chaos.Node) ProbeEnd {
		number, _ := name.At(n) // plan has checked that the port exists
		return ProbeEnd{Port: uint16(number)}
	}
	for _, p := range b.scope.Peers {
		peers = append(peers, port(b.through.PeerPort, p))
	}
	return port(b.through.Port, t), peers
}

// silence returns how long nothing must arrive before a link counts as cut: longer than the slowest arrival seen
// before.
func (b *block) silence() time.Duration {
	longest := probeSilence
	for _, s := range b.before {
		for _, p := range s.Peers {
			longest = max(longest, 4*p.Out.After, 4*p.In.After)
			if p.Shake != nil {
				longest = max(longest, 4*p.Shake.After)
			}
		}
	}
	return min(longest, 2*probePatience)
}

// counter returns a counter that starts now.
func (b *block) counter(ctx context.Context) chaos.Counted {
	base, failed := b.sum(ctx, nil)
	return chaos.Counted{Packets: func(ctx context.Context) (uint64, error) {
		now, err := b.sum(ctx, failed)
		return now.Packets - min(now.Packets, base.Packets), err
	}}
}

// sum adds up the packets that all rules have met. It joins its errors to err.
func (b *block) sum(ctx context.Context, err error) (Filtered, error) {
	var mu sync.Mutex
	var total Filtered
	failed := chaos.AtAll(b.at, func(f filterable) error {
		c, err := f.Filtered(ctx, b.key)
		mu.Lock()
		defer mu.Unlock()
		addMet(&total, c)
		return err
	})
	return total, errors.Join(err, failed)
}

// heal removes the rules everywhere, and checks that the links pass again and that nothing is left.
func (b *block) heal(ctx context.Context) (history.Receipt, error) {
	begun := clock.Now()
	var marked order
	if b.how == Hold {
		marked = b.mark(ctx, begun)
	}
	met, failed := b.takeDown(ctx)
	text, wrong := marked.told()
	now := b.probe(ctx, probePatience)
	receipt, err := chaos.OnEach(b.targets, func(t linked) (history.Receipt,
		error,
	) {
		return b.judgeHealed(t, now[t.Name()], begun)
	})
	receipt.Evidence += "; " + goneText(met, failed)
	if b.how == Hold {
		receipt.Evidence += fmt.Sprintf("; %d packets were released, %s", max(0, met.Held-marked.held), text)
	}
	if wrong != nil {
		receipt.Status = history.NotInstalled
	}
	return receipt, errors.Join(failed, err, wrong)
}

// takeDown removes the rules everywhere, checks in the kernel's own lists that they are gone, and adds up their
// packets.
func (b *block) takeDown(ctx context.Context) (Filtered, error) {
	var mu sync.Mutex
	var met Filtered
	failed := chaos.AtAll(b.at, func(f filterable) error {
		c, err := f.Unfilter(ctx, b.key)
		mu.Lock()
		defer mu.Unlock()
		addMet(&met, c)
		met.Others += c.Others
		if len(c.Left) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %s is left", f.Name(), strings.Join(c.Left, ", ")))
		}
		return err
	})
	if failed == nil {
		b.scope.LinkFaults.Remove(b.noted)
	}
	return met, failed
}

// each calls f for every lane of a target, with its probes before and now. A peer without a process is skipped and
// named in missing.
func (b *block) each(t chaos.Node, now ProbeResult, f func(l seenLane)) (missing []string) {
	before := b.before[t.Name()].Peers
	for i, is := range now.Peers {
		peer := b.scope.Peers[i]
		if is.Missing || len(before) == 0 || before[i].Missing {
			missing = append(missing, peer.Name())
			continue
		}
		was := before[i]
		if is.Shake != nil && was.Shake != nil {
			f(seenLane{
				Lane: b.lane(t, peer, true), peer: peer.Name(), outward: true, asked: true, shaken: true,
				was: *was.Shake, is: *is.Shake,
			})
			continue
		}
		f(seenLane{
			Lane: b.lane(t, peer, true), peer: peer.Name(), outward: true, asked: b.direction.out(),
			was: was.Out, is: is.Out,
		})
		f(seenLane{Lane: b.lane(t, peer, false), peer: peer.Name(), asked: b.direction.in(), was: was.In, is: is.In})
	}
	return missing
}

// seenLane is one direction of one link, before and now.
type seenLane struct {
	chaos.Lane
	peer    string
	outward bool // from the target
	asked   bool // the fault is to cut it
	shaken  bool // both directions of a link to an external server, probed by connections
	was, is Arrival
}
