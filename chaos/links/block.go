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

// block is one injection of a fault that keeps packets from arriving, by rules in the network namespaces of nodes.
//
// Example: a partition of etcd-1 from etcd-2 has four rules. etcd-1 drops what it sends to etcd-2 and what arrives from
// there, and etcd-2 does the same with etcd-1. Before and after, the agent sends datagrams between the two namespaces,
// by sockets of its own. They arrived before, and none does now, while a dial inside the namespace of etcd-1 still
// reaches its server: installed.
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
	at      []filterable      // the nodes where they are owed an undo
	before  map[string]ProbeResult
	since   int64            // clock.Now when before was begun
	noted   *chaos.LinkFault // in scope.LinkFaults
}

// filterable is a node that rules can stand at.
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
	probePatience = 2 * time.Second        // for what should arrive
	probeSilence  = 100 * time.Millisecond // for what should not, where it took less than a quarter of it before
)

// leaving is the rule, at its sender, of what is sent on a lane.
func leaving(l chaos.Lane, how string) Rule {
	return Rule{Node: l.To.Name(), Out: true, Port: uint16(l.FromPort), PeerPort: uint16(l.ToPort), How: how}
}

// arriving is the rule of it at its receiver.
func arriving(l chaos.Lane, how string) Rule {
	return Rule{Node: l.From.Name(), Port: uint16(l.ToPort), PeerPort: uint16(l.FromPort), How: how}
}

// rule adds a rule at a node, if rules can stand there.
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

// inject probes the links, puts up the rules that cut says for each lane, and probes again.
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
		receipt.Evidence += fmt.Sprintf("; the rules met %d packets", met.Packets)
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
		return errors.New("there is nobody at the other end of the links")
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
		return chaos.Unavailable{What: string(CanHold), Reason: "no receiver is a node that packets can be held at"}
	}
	return nil
}

// lane is one direction of the link between a target and a peer, on the ports that are meant.
func (b *block) lane(target, peer chaos.Node, outward bool) chaos.Lane {
	own, _ := b.through.Port.At(target) // plan has seen that they are there
	far, _ := b.through.PeerPort.At(peer)
	if outward {
		return chaos.Lane{From: target, To: peer, FromPort: own, ToPort: far}
	}
	return chaos.Lane{From: peer, To: target, FromPort: far, ToPort: own}
}

// note records in LinkFaults that rules are about to be put up.
func (b *block) note() {
	b.noted = b.scope.LinkFaults.Add(b.fault+" on "+chaos.NamesOf(b.targets), b.lanes)
}

// install puts up all rules at once.
func (b *block) install(ctx context.Context) error {
	b.note()
	return chaos.AtAll(b.at, func(f filterable) error { return f.Filter(ctx, b.key, b.rules[f.Name()]) })
}

// probe sends datagrams over all links of all targets. A target that could not be probed has no entry for any peer, and
// says why in Control.
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

// ends are the ports at the target's end and at those of its peers.
func (b *block) ends(t chaos.Node) (own ProbeEnd, peers []ProbeEnd) {
	port := func(name chaos.PortName, n chaos.Node) ProbeEnd {
		number, _ := name.At(n) // plan has seen that it is there
		return ProbeEnd{Port: uint16(number)}
	}
	for _, p := range b.scope.Peers {
		peers = append(peers, port(b.through.PeerPort, p))
	}
	return port(b.through.Port, t), peers
}

// silence is how long nothing must arrive before a link counts as cut: long enough for the slowest that was seen
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

// counter counts from now on.
func (b *block) counter(ctx context.Context) chaos.Counted {
	base, failed := b.sum(ctx, nil)
	return chaos.Counted{Packets: func(ctx context.Context) (uint64, error) {
		now, err := b.sum(ctx, failed)
		return now.Packets - min(now.Packets, base.Packets), err
	}}
}

// sum adds up what all rules have met; err is joined with what went wrong.
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

// heal takes the rules down everywhere, and checks that the links pass again and that nothing is left.
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
		receipt.Evidence += fmt.Sprintf("; %d packets were let go, %s", max(0, met.Held-marked.held), text)
	}
	if wrong != nil {
		receipt.Status = history.NotInstalled
	}
	return receipt, errors.Join(failed, err, wrong)
}

// takeDown takes the rules down everywhere, sees by the kernel's own lists that they are gone, and adds up what they
// met.
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

// each calls f for every lane of a target with what was seen of it before and is seen now. A peer without process is
// passed over, and named in missing.
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
	asked   bool // it is to be cut
	shaken  bool // both directions of a link to a server of somebody else's, as connections show them
	was, is Arrival
}
