package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
)

// block is one injection of a fault that keeps packets from arriving, by rules in the namespaces of nodes.
type block struct {
	key       string
	scope     Scope
	direction Direction
	through   Through
	how       string

	targets []linked
	rules   map[Node][]LinkRule
	at      []Filterer // where rules are owed an undo, in the order of names
	before  map[Node]LinksSeen
}

// linked is a target of a link fault.
type linked interface {
	Node
	Filterer
	LinkProber
}

// lane is one direction of one link.
type lane struct {
	from, to         Node
	fromPort, toPort int // 0: any
}

const (
	probePatience = 2 * time.Second        // for what should arrive
	probeSilence  = 100 * time.Millisecond // for what should not, where it took less than a quarter of it before
)

// rule adds a rule at a node, if rules can stand there.
func (b *block) rule(at Node, r LinkRule) {
	if _, ok := at.(Filterer); ok {
		b.rules[at] = append(b.rules[at], r)
	}
}

// inject probes the links, puts up the rules that cut says for each lane, and probes again.
func (b *block) inject(ctx context.Context, cut func(lane)) (Heal, history.Receipt, error) {
	var err error
	if b.targets, err = capable[linked](b.scope.On, CanFilter); err == nil {
		err = b.plan(cut)
	}
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	b.before = b.probe(ctx, probePatience)
	failed := b.install(ctx)
	after := b.probe(ctx, b.silence())
	if b.scope.Counts != nil {
		b.scope.Counts(b.counter(ctx))
	}
	var met LinkCount
	receipt, err := onEach(b.targets, func(t linked) (history.Receipt, error) { return b.judge(t, after[t]) })
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

// plan makes the rules of all lanes.
func (b *block) plan(cut func(lane)) error {
	b.rules = make(map[Node][]LinkRule)
	if len(b.scope.Peers) == 0 {
		return errors.New("there is nobody at the other end of the links")
	}
	for _, t := range b.targets {
		own, err := b.through.Port.at(t)
		if err != nil {
			return err
		}
		for _, p := range b.scope.Peers {
			far, err := b.through.PeerPort.at(p)
			if err != nil {
				return err
			}
			if b.direction.out() {
				cut(lane{from: t, to: p, fromPort: own, toPort: far})
			}
			if b.direction.in() {
				cut(lane{from: p, to: t, fromPort: far, toPort: own})
			}
		}
	}
	for n := range b.rules {
		b.at = append(b.at, n.(Filterer)) // rule saw to it
	}
	if len(b.at) == 0 {
		return Unavailable{What: string(CanHold), Reason: "no receiver is a node that packets can be held at"}
	}
	return nil
}

// install puts up all rules at once.
func (b *block) install(ctx context.Context) error {
	return atAll(b.at, func(f Filterer) error { return f.Filter(ctx, b.key, b.rules[f.(Node)]) })
}

// atAll does the same at every node at once.
func atAll[T any](nodes []T, act func(T) error) error {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { errs[i] = act(n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// probe sends datagrams over all links of all targets. A target that could not be probed has no entry for any peer, and says why
// in Control.
func (b *block) probe(ctx context.Context, patience time.Duration) map[Node]LinksSeen {
	var mu sync.Mutex
	seen := make(map[Node]LinksSeen)
	_ = atAll(b.targets, func(t linked) error {
		s, err := t.ProbeLinks(ctx, b.ask(t, patience))
		if err != nil {
			s = LinksSeen{Control: err.Error()}
		}
		mu.Lock()
		defer mu.Unlock()
		seen[t] = s
		return nil
	})
	return seen
}

func (b *block) ask(t Node, patience time.Duration) LinkProbe {
	p := LinkProbe{Peers: b.scope.Peers, Patience: patience, PeerPort: map[Node]int{}}
	p.Port, _ = b.through.Port.at(t) // plan has seen that they are there
	for _, peer := range p.Peers {
		p.PeerPort[peer], _ = b.through.PeerPort.at(peer)
	}
	if b.how == Reject && b.through == (Through{}) {
		p.DialOut, p.DialIn = b.direction.out(), b.direction.in()
	}
	return p
}

// silence is how long nothing must arrive before a link counts as cut: long enough for the slowest that was seen before.
func (b *block) silence() time.Duration {
	longest := probeSilence
	for _, s := range b.before {
		for _, p := range s.Peers {
			longest = max(longest, 4*p.Out.After, 4*p.In.After)
		}
	}
	return min(longest, 2*probePatience)
}

// counter counts from now on.
func (b *block) counter(ctx context.Context) Counted {
	base, failed := b.sum(ctx, nil)
	return Counted{Packets: func(ctx context.Context) (uint64, error) {
		now, err := b.sum(ctx, failed)
		return now.Packets - min(now.Packets, base.Packets), err
	}}
}

// sum adds up what all rules have met; err is joined with what went wrong.
func (b *block) sum(ctx context.Context, err error) (LinkCount, error) {
	var mu sync.Mutex
	var total LinkCount
	failed := atAll(b.at, func(f Filterer) error {
		c, err := f.Filtered(ctx, b.key)
		mu.Lock()
		defer mu.Unlock()
		total.add(c)
		return err
	})
	return total, errors.Join(err, failed)
}

// heal takes the rules down everywhere, and sees that the links pass again and that nothing is left.
func (b *block) heal(ctx context.Context) (history.Receipt, error) {
	met, failed := b.takeDown(ctx)
	now := b.probe(ctx, probePatience)
	receipt, err := onEach(b.targets, func(t linked) (history.Receipt, error) { return b.judgeHealed(t, now[t], met.Others) })
	receipt.Evidence += fmt.Sprintf("; the rules had met %d packets and are gone", met.Packets)
	if b.how == Hold {
		receipt.Evidence += fmt.Sprintf("; %d packets were let go in their order", met.Held)
	}
	return receipt, errors.Join(failed, err)
}

// takeDown takes the rules down everywhere and adds up what they met.
func (b *block) takeDown(ctx context.Context) (LinkCount, error) {
	var mu sync.Mutex
	var met LinkCount
	failed := atAll(b.at, func(f Filterer) error {
		c, err := f.Unfilter(ctx, b.key)
		mu.Lock()
		defer mu.Unlock()
		met.add(c)
		met.Others += c.Others
		if len(c.Left) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %s is left", f.(Node).Name(), strings.Join(c.Left, ", ")))
		}
		return err
	})
	return met, failed
}

// each calls f for every lane of a target with what was seen of it before and is seen now. A peer without process is passed
// over, and named in missing.
func (b *block) each(t Node, now LinksSeen, f func(l seenLane)) (missing []string) {
	for _, p := range now.Peers {
		i := slices.IndexFunc(b.before[t].Peers, func(q LinkSeen) bool { return q.Peer == p.Peer && !q.Missing })
		if p.Missing || i < 0 {
			missing = append(missing, p.Peer.Name())
			continue
		}
		was := b.before[t].Peers[i]
		f(seenLane{peer: p.Peer.Name(), outward: true, asked: b.direction.out(), was: was.Out, is: p.Out})
		f(seenLane{peer: p.Peer.Name(), asked: b.direction.in(), was: was.In, is: p.In})
	}
	return missing
}

// seenLane is one direction of one link, before and now.
type seenLane struct {
	peer    string
	outward bool // from the target
	asked   bool // it is to be cut
	was, is Arrival
}
