package links

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// reset ends established connections and lets new ones pass, like a firewall, load balancer or NAT that restarts or
// drops idle connections.
type reset struct {
	// From selects the peers: selectors or names; default all other nodes of the run.
	From    chaos.Names `yaml:"from"`
	Through `yaml:",inline"`
	// How is byRST (the default) or byForgetting.
	How string `yaml:"how"`
}

// The ways in which connections end.
const (
	byRST        = "rst"    // both ends see a reset at once
	byForgetting = "forget" // packets on them vanish; neither end gets an error
)

func resetKind() chaos.Kind {
	return chaos.Kind{
		Name: "reset", Place: 20,
		Doc: "Breaks the TCP connections between the targets and others that are established at that moment; new " +
			"ones work. `how: rst` (default) resets them at both ends at once. `how: forget` drops their packets " +
			"until the heal, and then resets them. Receipt: the kernels at both ends no longer list them, or count " +
			"the dropped packets while the target's kernel still lists them as established.",
		Needs:   []chaos.Capability{CanReset},
		Lasting: true,
		Try:     []string{"", "how: forget"},
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := reset{From: chaos.Names{chaos.Rest}, How: byRST}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.How != byRST && f.How != byForgetting {
				return nil, fmt.Errorf("how of reset is %q: want %s (both ends get a reset) or %s (packets are dropped)",
					f.How, byRST, byForgetting)
			}
			return f, nil
		},
	}
}

// Momentary reports whether the fault is over once it is injected.
func (f reset) Momentary() bool { return f.How == byRST }

// Needs lists the capabilities that the targets must have.
func (f reset) Needs() []chaos.Capability {
	if f.How == byForgetting {
		return []chaos.Capability{CanReset, CanFilter}
	}
	return []chaos.Capability{CanReset}
}

// Words describe how the connections end.
func (f reset) Words() (began, ended string) {
	if f.How == byForgetting {
		return "connections with {peers} forgotten", "the rest of them is reset"
	}
	return "connections with {peers} reset", ""
}

// Far names the other ends.
func (f reset) Far() chaos.Names { return f.From }

// AtOwnEnd returns the same needs for external far ends.
func (f reset) AtOwnEnd() ([]chaos.Capability, error) { return f.Needs(), nil }

// resettable is a target of reset.
type resettable interface {
	filterable
	Resetter
}

// Inject ends the connections of all targets concurrently.
func (f reset) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	targets, err := chaos.Capable[resettable](s.On, CanReset)
	if err == nil && len(s.Peers) == 0 {
		err = errors.New("the connections have no other end")
	}
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	all := make([]*severed, len(targets))
	for i, t := range targets {
		if all[i], err = f.of(t, s); err != nil {
			return chaos.NothingToHeal, chaos.NothingDone(err), err
		}
	}
	if f.How == byRST {
		receipt, err := chaos.OnEach(all, func(v *severed) (history.Receipt, error) { return v.end(ctx) })
		return chaos.NothingToHeal, receipt, err
	}
	receipt, err := chaos.OnEach(all, func(v *severed) (history.Receipt, error) { return v.forget(ctx) })
	return func(ctx context.Context) (history.Receipt, error) {
		return chaos.OnEach(all, func(v *severed) (history.Receipt, error) { return v.heal(ctx) })
	}, receipt, err
}

// severed is a target and its connections to end.
type severed struct {
	resettable
	scope chaos.Scope
	own   uint16   // the port at the target's end; 0: any
	far   []uint16 // those of the peers, in their order

	taken []Connection
	key   string           // of the filter
	noted *chaos.LinkFault // in scope.LinkFaults
}

func (f reset) of(t resettable, s chaos.Scope) (*severed, error) {
	out := &severed{resettable: t, scope: s, key: linkKey("reset")}
	own, err := f.Port.At(t)
	out.own = uint16(own)
	for _, p := range s.Peers {
		far, wrong := f.PeerPort.At(p)
		out.far, err = append(out.far, uint16(far)), errors.Join(err, wrong)
	}
	return out, err
}

// list returns the target's connections now.
func (v *severed) list(ctx context.Context) ([]Connection, error) {
	return v.Connections(ctx, v.scope.Peers, v.own, v.far)
}

// take records the current connections. It returns an error if there are none.
func (v *severed) take(ctx context.Context) error {
	var err error
	if v.taken, err = v.list(ctx); err == nil && len(v.taken) == 0 {
		err = errors.New("no connection is established")
	}
	return err
}

// end resets the connections and checks them at both ends.
func (v *severed) end(ctx context.Context) (history.Receipt, error) {
	if err := v.take(ctx); err != nil {
		return history.Receipt{}, err
	}
	ended, failed := v.Reset(ctx, v.taken)
	sent := clock.Now()
	now, err := v.list(ctx)
	if err = errors.Join(failed, err); err != nil {
		return history.Receipt{}, err
	}
	evidence := fmt.Sprintf("%s: %d connections with %s", v.Name(), len(v.taken), perPeer(v.taken))
	if still := among(v.taken, now); len(still) > 0 {
		return chaos.Seen(history.NotInstalled, 0, fmt.Sprintf("%s, %d of them still established", evidence,
			len(still))), nil
	}
	status, text := v.atPeers(ctx)
	evidence += ", none of them still established; " + text + ended.String()
	if n := len(now); n > 0 {
		evidence += fmt.Sprintf("; connections made since: %d", n)
	}
	return chaos.Seen(status, sent, evidence), nil
}

// resetArrives bounds the time until the other end has seen a reset.
const resetArrives = time.Second

// atPeers looks for the connections at their other ends.
func (v *severed) atPeers(ctx context.Context) (history.ReceiptStatus, string) {
	looked, deadline := 0, clock.Now()+int64(resetArrives)
	for i, n := range v.scope.Peers {
		p, ok := chaos.As[Resetter](n)
		if !ok || foreign(n) {
			continue
		}
		for {
			there, err := p.Connections(ctx, []chaos.Node{v.resettable}, v.far[i], []uint16{v.own})
			if err != nil {
				break // its process has ended, or never started
			}
			left := slices.DeleteFunc(there, func(c Connection) bool { return !v.has(n.Name(), c) })
			if len(left) == 0 {
				looked++
				break
			}
			if clock.Now() > deadline || clock.Sleep(ctx, 10*time.Millisecond) != nil {
				return history.NotInstalled,
					fmt.Sprintf("at the end of %s %d are still established: no reset has arrived there", n.Name(),
						len(left))
			}
		}
	}
	if looked == 0 {
		return history.Installed, "the other ends are not accessible"
	}
	return history.Installed, fmt.Sprintf("nor at the ends of %d others", looked)
}

// has reports whether c, as listed by a peer, is one of the taken connections.
func (v *severed) has(peer string, c Connection) bool {
	return slices.ContainsFunc(v.taken, func(t Connection) bool {
		return t.Node == peer && t.Port == c.PeerPort &&
			t.PeerPort == c.Port
	})
}

// forgetPatience bounds the wait for the first dropped packet.
const forgetPatience = 2 * time.Second

// forget drops all packets of the connections, and waits for the first dropped one.
func (v *severed) forget(ctx context.Context) (history.Receipt, error) {
	if err := v.take(ctx); err != nil {
		return history.Receipt{}, err
	}
	var rules []Rule
	var lanes []chaos.Lane
	for _, c := range v.taken {
		peer := v.scope.Peers[slices.IndexFunc(v.scope.Peers, func(n chaos.Node) bool { return n.Name() == c.Node })]
		out := chaos.Lane{From: v.resettable, To: peer, FromPort: int(c.Port), ToPort: int(c.PeerPort)}
		in := chaos.Lane{From: peer, To: v.resettable, FromPort: int(c.PeerPort), ToPort: int(c.Port)}
		lanes, rules = append(lanes, out, in), append(rules, leaving(out, Drop), arriving(in, Drop))
	}
	v.noted = v.scope.LinkFaults.Add("reset on "+v.Name(), lanes)
	if err := v.Filter(ctx, v.key, rules); err != nil {
		return history.Receipt{}, err
	}
	met, err := v.firstMet(ctx)
	if err != nil {
		return history.Receipt{}, err
	}
	bit := clock.Now()
	now, err := v.list(ctx)
	if err != nil {
		return history.Receipt{}, err
	}
	evidence := fmt.Sprintf("%s: %d connections with %s are forgotten, %d of them still established in its kernel; %d of their packets were dropped",
		v.Name(), len(v.taken), perPeer(v.taken), len(among(v.taken, now)), met)
	if met == 0 {
		return chaos.Seen(history.Indeterminate, bit, evidence+" within "+forgetPatience.String()), nil
	}
	return chaos.Seen(history.Installed, bit, evidence), nil
}

func (v *severed) firstMet(ctx context.Context) (uint64, error) {
	defer clock.Waits(ctx, forgetPatience)()
	for deadline := clock.Now() + int64(forgetPatience); ; {
		met, err := v.Filtered(ctx, v.key)
		if err != nil || met.Packets > 0 || clock.Now() > deadline || clock.Sleep(ctx, 10*time.Millisecond) != nil {
			return met.Packets, err
		}
	}
}

// heal resets the connections that are left, so that none revives, and then removes the rules.
func (v *severed) heal(ctx context.Context) (history.Receipt, error) {
	if v.noted == nil {
		return chaos.NothingToHeal(ctx)
	}
	now, err := v.list(ctx)
	left := among(v.taken, now)
	if err == nil && len(left) > 0 {
		_, err = v.Reset(ctx, left)
	}
	met, failed := v.Unfilter(ctx, v.key)
	if failed == nil && v.noted != nil {
		v.scope.LinkFaults.Remove(v.noted)
	}
	evidence := fmt.Sprintf("%s: %d of %d connections were left and were reset, %d others are established; %s",
		v.Name(), len(left), len(v.taken), len(now)-len(left), goneText(met, failed))
	if err != nil { // its process is gone, and its connections with it
		evidence = fmt.Sprintf("%s: its connections were not checked: %v; %s", v.Name(), err, goneText(met, failed))
	}
	if len(met.Left) > 0 {
		failed = errors.Join(failed, fmt.Errorf("%v is left", met.Left))
	}
	if failed != nil {
		return chaos.Seen(history.NotInstalled, 0, evidence), failed
	}
	return chaos.Seen(history.Installed, 0, evidence), nil
}
