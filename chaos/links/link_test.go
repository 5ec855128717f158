package links

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// cable is a network of nodes whose links pass all that no rule blocks.
type cable struct{ nodes []*wired }

// wired is a node of a cable. Its fields make it a saboteur.
type wired struct {
	name  string
	net   *cable
	mu    sync.Mutex // rules, shapings, met and held
	rules map[string][]Rule
	met   uint64
	held  int

	deaf     bool // accepts rules and installs none
	dead     bool // has no process
	keeps    bool // does not remove rules
	unheld   bool // reports no waiting packets
	confined bool // cannot be reached from inside once a rule stands
	broken   error
	left     []string

	shapings map[string]Shaping // by key, of those that have rules
	engines  map[Engine]string  // nil: the queue alone
	lame     bool               // shapes nothing
	host     string             // the host whose agent measures it

	looked func() // called once, when its links are looked at next

	looks  int                        // how often its links were measured
	skewed func(look int, seen *Flow) // changes what a measurement sees; the first is 1; nil: nothing
	paces  []time.Duration            // of the measurements
}

// looking calls looked, once.
func (w *wired) looking() {
	if f := w.looked; f != nil {
		w.looked = nil
		f()
	}
}

func wire(names ...string) *cable {
	c := &cable{}
	for _, n := range names {
		c.nodes = append(c.nodes, &wired{name: n, net: c, rules: map[string][]Rule{}, shapings: map[string]Shaping{}})
	}
	return c
}

func (c *cable) list() []chaos.Node {
	var out []chaos.Node
	for _, n := range c.nodes {
		out = append(out, n)
	}
	return out
}

func (w *wired) Name() string { return w.name }

func (w *wired) Port(name string) (int, bool) { return 7000, name == "main" }

func (w *wired) Filter(_ context.Context, key string, rules []Rule) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil && !w.deaf {
		w.rules[key] = rules
	}
	return w.broken
}

func (w *wired) Filtered(context.Context, string) (Filtered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Filtered{Packets: w.met, Held: w.held}, nil
}

func (w *wired) Unfilter(_ context.Context, key string) (Filtered, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keeps {
		return Filtered{Packets: w.met}, nil
	}
	delete(w.rules, key)
	delete(w.shapings, key)
	return Filtered{Packets: w.met, Held: w.held, Left: w.left, Others: len(w.rules)}, nil
}

// stops reports whether a rule of the node stops a packet between it and a peer.
func (w *wired) stops(peer chaos.Node, out bool, port, peerPort uint16) (how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rules := range w.rules {
		for _, r := range rules {
			if r.How != Shape && r.Node == peer.Name() && r.Out == out && (r.Port == 0 || r.Port == port) && (r.PeerPort == 0 || r.PeerPort == peerPort) {
				how = r.How
			}
		}
	}
	if how != "" {
		w.met++
	}
	if how == Hold && !w.unheld {
		w.held++
	}
	return how
}

// send returns the result of a packet.
func (w *wired) send(to *wired, port, peerPort uint16) Arrival {
	how := w.stops(to, true, port, peerPort)
	if how == "" {
		how = to.stops(w, false, peerPort, port)
	}
	a := Arrival{Arrived: how == "", Sent: 1, Dial: Connected}
	switch how {
	case Reject:
		a.Dial = Refused
	case Drop, Hold:
		a.Dial = Silent
	}
	return a
}

func (w *wired) ProbeLinks(_ context.Context, peers []chaos.Node, p ProbeArgs) (ProbeResult, error) {
	if w.looking(); w.dead {
		return ProbeResult{}, errors.New("no such process")
	}
	var out ProbeResult
	for i, n := range peers {
		peer, far := n.(*wired), p.Peers[i].Port
		l := Seen{Missing: peer.dead}
		if !peer.dead {
			l.Out, l.In = w.send(peer, p.Port, far), peer.send(w, far, p.Port)
		}
		if !p.DialOut {
			l.Out.Dial = ""
		}
		if !p.DialIn {
			l.In.Dial = ""
		}
		out.Peers = append(out.Peers, l)
	}
	if w.confined && len(w.rules) > 0 {
		out.Control = "connection refused"
	}
	return out, nil
}

func newFault(t *testing.T, name, params string) chaos.Fault {
	t.Helper()
	return faulttest.New(t, Kinds(), name, params)
}

// reach lists the links that pass, as "a>b".
func (c *cable) reach(port, peerPort uint16) string {
	var out []string
	for _, a := range c.nodes {
		for _, b := range c.nodes {
			if a != b && a.send(b, port, peerPort).Arrived {
				out = append(out, a.name+">"+b.name)
			}
		}
	}
	return strings.Join(out, " ")
}

func TestPartitions(t *testing.T) {
	const open = "a>b a>c b>a b>c c>a c>b"
	for _, p := range []struct{ params, cut string }{
		{"{from: rest}", "b>c c>b"},
		{"{from: [b, c], how: reject}", "b>c c>b"},
		{"{direction: out}", "b>a b>c c>a c>b"},
		{"{direction: in}", "a>b a>c b>c c>b"},
		{"{port: 6379, direction: out}", open},
		{"{peer_port: main}", open},
	} {
		c := wire("a", "b", "c")
		var counted chaos.Counted
		s := chaos.Scope{On: c.list()[:1], Peers: c.list()[1:], Run: &faulttest.Run{Counted: &counted}}
		f := newFault(t, "partition", p.params)
		if cuts := (chaos.Kind{}).Traits(f).Cuts; cuts != (p.cut != open) {
			t.Errorf("%s: cuts all connections: %t", p.params, cuts)
		}
		heal, r, err := f.Inject(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, p.params, r, history.Installed)
		if got := c.reach(0, 0); got != p.cut {
			t.Errorf("%s: what passes is %s, want %s", p.params, got, p.cut)
		}
		switch {
		case strings.Contains(p.params, "6379"):
			if got := c.reach(6379, 1); got != "b>a b>c c>a c>b" {
				t.Errorf("from port 6379 pass %s", got)
			}
		case strings.Contains(p.params, "main"):
			if got := c.nodes[0].send(c.nodes[1], 1, 7000); got.Arrived {
				t.Error("what goes to the others' port still passes")
			}
			if got := c.nodes[1].send(c.nodes[0], 7000, 1); got.Arrived {
				t.Error("what comes from the others' port still passes")
			}
		}
		if n, err := counted.Packets(t.Context()); err != nil || n == 0 {
			t.Errorf("%s: %d packets were counted, %v", p.params, n, err)
		}
		r, err = heal(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, "heal of "+p.params, r, history.Installed)
		if got := c.reach(0, 0); got != open {
			t.Errorf("%s: after the heal pass %s", p.params, got)
		}
	}
}

func TestPartitionCountsFromItsReceiptOn(t *testing.T) {
	c := wire("a", "b")
	var counted chaos.Counted
	_, _, err := newFault(t, "partition", "{}").Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:], Run: &faulttest.Run{Counted: &counted}})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := counted.Packets(t.Context()); err != nil || n != 0 {
		t.Errorf("%d packets before any was sent, %v: its own probes count", n, err)
	}
	c.nodes[0].send(c.nodes[1], 0, 0)
	if n, err := counted.Packets(t.Context()); err != nil || n != 1 {
		t.Errorf("%d packets after one was sent, %v", n, err)
	}
}

func TestHoldBack(t *testing.T) {
	c := wire("a", "b", "c")
	heal := faulttest.Injected(t, "hold-back", newFault(t, "hold-back", "{to: b}"), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:2]})
	if len(c.nodes[0].rules) > 0 || len(c.nodes[1].rules) != 1 {
		t.Error("packets are held elsewhere than at their receiver")
	}
	if got := c.reach(0, 0); got != "a>c b>a b>c c>a c>b" {
		t.Errorf("what passes is %s", got)
	}
	r, err := heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", r, history.Installed)
	if !strings.Contains(r.Evidence, " packets were released, 20 datagrams were sent right after them: 20 waited as well, and 20 arrived, in order") {
		t.Errorf("the heal says %q", r.Evidence)
	}
}

func TestHeldPacketsThatAreNotLetGoInOrder(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		what   string
		change func(a, b *wired)
		says   string // in the evidence
		err    string
	}{
		{"overtaken", func(a, _ *wired) { a.skewed = func(_ int, f *Flow) { f.Leapt = 3 } }, "3 of them before an earlier one", "a different order"},
		{"lost", func(a, _ *wired) { a.skewed = func(_ int, f *Flow) { f.Arrived -= 5 } }, "20 waited as well, and 15 arrived", "5 of 20 held packets"},
		{"the sender is gone", func(a, _ *wired) { a.dead = true }, "no sender and receiver are left", ""},
		{"not held any more", func(_, b *wired) { b.unheld = true }, "0 waited as well, and 20 arrived", ""},
	} {
		c := wire("a", "b")
		heal, r, err := newFault(t, "hold-back", "{to: b}").Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, x.what, r, history.Installed)
		x.change(c.nodes[0], c.nodes[1])
		r, err = heal(t.Context())
		if !strings.Contains(r.Evidence, x.says) || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s: %v; %s", x.what, err, r.Evidence)
		}
		if (r.Status == history.Installed) != (x.err == "") {
			t.Errorf("%s: the heal is %s", x.what, r.Status)
		}
	}
}

func TestLinkFaultsThatDidNotBite(t *testing.T) {
	for _, s := range []struct {
		what, fault, params string
		sabotage            func(a, b *wired)
		want                history.ReceiptStatus
		says                string
	}{
		{"a filter that does nothing", "partition", "{}", func(a, b *wired) { a.deaf, b.deaf = true, true }, history.NotInstalled, "still arrive"},
		{"a filter that gives up", "partition", "{}", func(a, _ *wired) { a.broken = errors.New("no such kernel") }, history.Installed, "no such kernel"},
		{"a queue that holds nothing", "hold-back", "{to: b}", func(_, b *wired) { b.unheld = true }, history.NotInstalled, "0 wait"},
		{"a link that was cut before", "partition", "{}", func(a, b *wired) {
			a.rules["x"] = []Rule{{Node: b.name, Out: true, How: Drop}, {Node: b.name, How: Drop}}
		}, history.Indeterminate, "nothing passed before either"},
		{"a target that is not reached any more", "partition", "{}", func(a, _ *wired) { a.confined = true }, history.Indeterminate, "no longer reached"},
		{"nobody at the other end", "partition", "{}", func(_, b *wired) { b.dead = true }, history.Indeterminate, "has no process"},
		{"a target without process", "partition", "{}", func(a, _ *wired) { a.dead = true }, history.Indeterminate, "not probed"},
	} {
		c := wire("a", "b")
		s.sabotage(c.nodes[0], c.nodes[1])
		heal, r, err := newFault(t, s.fault, s.params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:2]})
		if err != nil {
			r.Evidence += err.Error()
		}
		faulttest.WantStatus(t, s.what, r, s.want)
		if !strings.Contains(r.Evidence, s.says) {
			t.Errorf("%s: %q does not say %q", s.what, r.Evidence, s.says)
		}
		if heal == nil {
			t.Fatalf("%s: there is no heal", s.what)
		}
	}
}

func TestLinkFaultsThatWereNotHealed(t *testing.T) {
	inject := func(c *cable) (history.Receipt, error) {
		heal := faulttest.Injected(t, "partition", newFault(t, "partition", "{}"), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		return heal(t.Context())
	}
	c := wire("a", "b")
	c.nodes[0].left = []string{"lockquake_x"}
	if _, err := inject(c); err == nil || !strings.Contains(err.Error(), "lockquake_x is left") {
		t.Errorf("rules that are left: %v", err)
	}
	c = wire("a", "b")
	c.nodes[1].keeps = true
	r, err := inject(c)
	if err == nil || !strings.Contains(err.Error(), "still cut: to b, from b") {
		t.Errorf("a link that is still cut: %v", err)
	}
	faulttest.WantStatus(t, "the heal of a link that is still cut", r, history.NotInstalled)
}

func TestOverlappingPartitionsHealIndependently(t *testing.T) {
	c := wire("a", "b", "c")
	a, lanes := c.list(), &chaos.LinkFaults{}
	first := faulttest.Injected(t, "the first", newFault(t, "partition", "{}"), chaos.Scope{On: a[:1], Peers: a[1:], LinkFaults: lanes})
	second := faulttest.Injected(t, "the second, of which one link was cut already", newFault(t, "partition", "{}"), chaos.Scope{On: a[1:2], Peers: []chaos.Node{a[0], a[2]}, LinkFaults: lanes})
	if _, err := first(t.Context()); err != nil {
		t.Error(err)
	}
	if got := c.reach(0, 0); got != "a>c c>a" {
		t.Errorf("with the second alone pass %s", got)
	}
	if _, err := second(t.Context()); err != nil {
		t.Error(err)
	}
	if got := c.reach(0, 0); got != "a>b a>c b>a b>c c>a c>b" {
		t.Errorf("with neither pass %s", got)
	}
}

func TestLinkFaultsRefuse(t *testing.T) {
	for name, params := range map[string][]string{
		"partition": {"{direction: up}", "{how: softly}", "{from: []}", "{from: {a: b}}", "{port: 0}", "{port: 70000}", "{port: -1}", "{port: [1]}", "{sides: 2}"},
		"hold-back": {"{}", "{to: []}", "{to: b, direction: in}"},
	} {
		k := faulttest.Kind(t, Kinds(), name)
		for _, p := range params {
			if _, err := k.New(faulttest.Decoding(p)); err == nil {
				t.Errorf("%s %s was taken", name, p)
			}
		}
	}
	c := wire("a", "b")
	for what, s := range map[string]chaos.Scope{
		"a target that has no links":  {On: []chaos.Node{faulttest.Node("x")}, Peers: c.list()},
		"nobody to be cut off from":   {On: c.list()[:1]},
		"a port that a node lacks":    {On: c.list()[:1], Peers: []chaos.Node{faulttest.Node("x")}},
		"a receiver that cannot hold": {On: c.list()[:1], Peers: []chaos.Node{faulttest.Node("x")}},
	} {
		name, params := "partition", "{peer_port: main}"
		if strings.Contains(what, "hold") {
			name, params = "hold-back", "{to: x}"
		}
		heal, r, err := newFault(t, name, params).Inject(t.Context(), s)
		if err == nil || heal == nil {
			t.Errorf("%s: error %v, heal nil: %t", what, err, heal == nil)
		}
		faulttest.WantStatus(t, what, r, history.NotInstalled)
	}
}

func TestSilenceFitsTheSlowestLink(t *testing.T) {
	b := &block{before: map[string]ProbeResult{"x": {Peers: []Seen{{In: Arrival{After: 60 * time.Millisecond}}}}}}
	if got := b.silence(); got != 240*time.Millisecond {
		t.Errorf("silence is waited for %s", got)
	}
}
