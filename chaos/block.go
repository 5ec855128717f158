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
	"github.com/lockquake/lockquake/internal/clock"
)

// block is one injection of a fault that keeps packets from arriving, by rules in the namespaces of nodes.
type block struct {
	fault     string // its name
	key       string
	scope     Scope
	direction Direction
	through   Through
	how       string

	targets []linked
	lanes   []lane // those that it acts on
	rules   map[Node][]LinkRule
	at      []Filterer // where rules are owed an undo, in the order of names
	before  map[Node]LinksSeen
	since   int64 // clock.Now when before was begun
	laid    *laid // in scope.Lanes
}

// linked is a target of a link fault.
type linked interface {
	Node
	Filterer
	LinkProber
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
	b.since = clock.Now()
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

// plan lists the lanes, and makes their rules.
func (b *block) plan(cut func(lane)) error {
	b.key, b.rules = linkKey(b.fault), make(map[Node][]LinkRule)
	if len(b.scope.Peers) == 0 {
		return errors.New("there is nobody at the other end of the links")
	}
	for _, t := range b.targets {
		if _, err := b.through.Port.at(t); err != nil {
			return err
		}
		for _, p := range b.scope.Peers {
			if _, err := b.through.PeerPort.at(p); err != nil {
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
	for n := range b.rules {
		b.at = append(b.at, n.(Filterer)) // rule saw to it
	}
	if len(b.at) == 0 {
		return Unavailable{What: string(CanHold), Reason: "no receiver is a node that packets can be held at"}
	}
	return nil
}

// lane is one direction of the link between a target and a peer, on the ports that are meant.
func (b *block) lane(target, peer Node, outward bool) lane {
	own, _ := b.through.Port.at(target) // plan has seen that they are there
	far, _ := b.through.PeerPort.at(peer)
	if outward {
		return lane{from: target, to: peer, fromPort: own, toPort: far}
	}
	return lane{from: peer, to: target, fromPort: far, toPort: own}
}

// lay notes that rules are about to be put up.
func (b *block) lay() {
	b.laid = b.scope.Lanes.lay(b.fault+" on "+namesOf(b.targets), b.lanes)
}

// install puts up all rules at once.
func (b *block) install(ctx context.Context) error {
	b.lay()
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
	begun := clock.Now()
	var marked order
	if b.how == Hold {
		marked = b.mark(ctx, begun)
	}
	met, failed := b.takeDown(ctx)
	text, wrong := marked.told()
	now := b.probe(ctx, probePatience)
	receipt, err := onEach(b.targets, func(t linked) (history.Receipt, error) { return b.judgeHealed(t, now[t], begun) })
	receipt.Evidence += "; " + met.gone(failed)
	if b.how == Hold {
		receipt.Evidence += fmt.Sprintf("; %d packets were let go, %s", max(0, met.Held-marked.held), text)
	}
	if wrong != nil {
		receipt.Status = history.NotInstalled
	}
	return receipt, errors.Join(failed, err, wrong)
}

// takeDown takes the rules down everywhere, sees by the kernel's own lists that they are gone, and adds up what they met.
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
	if failed == nil {
		b.scope.Lanes.lift(b.laid)
	}
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
		f(seenLane{lane: b.lane(t, p.Peer, true), peer: p.Peer.Name(), outward: true, asked: b.direction.out(), was: was.Out, is: p.Out})
		f(seenLane{lane: b.lane(t, p.Peer, false), peer: p.Peer.Name(), asked: b.direction.in(), was: was.In, is: p.In})
	}
	return missing
}

// seenLane is one direction of one link, before and now.
type seenLane struct {
	lane
	peer    string
	outward bool // from the target
	asked   bool // it is to be cut
	was, is Arrival
}
