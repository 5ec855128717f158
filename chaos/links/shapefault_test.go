package links

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

func (w *wired) Engines(context.Context) (Engines, error) {
	if w.engines == nil {
		return map[Engine]string{Netem: "no such kernel", Queue: "", TBF: ""}, nil
	}
	return w.engines, nil
}

func (w *wired) Shape(ctx context.Context, key string, rules []Rule, s Shaping) error {
	if err := w.Filter(ctx, key, rules); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shapings[key] = s
	return nil
}

// shapes sums up the node's shapings of packets between it and a peer.
func (w *wired) shapes(peer chaos.Node, out bool, port, peerPort uint16, sum *Shaping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, s := range w.shapings {
		for _, r := range w.rules[key] {
			if r.Node != peer.Name() || r.Out != out || r.Port != 0 && r.Port != port || r.PeerPort != 0 && r.PeerPort != peerPort || w.lame {
				continue
			}
			w.met++
			sum.Delay, sum.Jitter, sum.Loss = sum.Delay+s.Delay, max(sum.Jitter, s.Jitter), 1-(1-sum.Loss)*(1-s.Loss)
			sum.Duplicate, sum.Reorder, sum.Corrupt = sum.Duplicate+s.Duplicate, sum.Reorder+s.Reorder, sum.Corrupt+s.Corrupt
			if sum.Rate = max(sum.Rate, s.Rate); s.Reorder > 0 {
				sum.Delay -= s.Delay
			}
		}
	}
}

// flows returns what would become of n datagrams to another node.
func (w *wired) flows(to *wired, m MeasureArgs, port, peerPort uint16) Flow {
	var s Shaping
	w.shapes(to, true, port, peerPort, &s)
	to.shapes(w, false, peerPort, port, &s)
	part := func(share float64) int { return int(math.Round(share * float64(m.Count))) }
	f := Flow{Sent: m.Count, Arrived: m.Count - part(s.Loss) - part(s.Corrupt), Damaged: uint64(part(s.Corrupt)), Copies: part(s.Duplicate), Leapt: part(s.Reorder)}
	late := 50*time.Microsecond + s.Delay
	differs := s.Jitter * 9 / 10
	f.OneWay, f.Round = Spread{Low: late - differs, Mid: late, High: late + differs, Max: late + s.Jitter}, Spread{Low: 2 * late, Mid: 2 * late, High: 2 * late, Max: 2 * late}
	if m.Every > 0 {
		f.Bits = float64((m.Size+42)*8) / m.Every.Seconds()
	}
	if s.Rate > 0 {
		f.Bits = min(f.Bits, float64(s.Rate))
	}
	if w.host != to.host {
		f = w.byTwoClocks(to, f, m.Echo, port, peerPort)
	}
	return f
}

// holds returns once no rule of the node holds datagrams of a peer, or after a short while.
func (w *wired) holds(peer chaos.Node, count int, port, peerPort uint16) {
	if w.stops(peer, false, port, peerPort) != Hold {
		return
	}
	for more, tries := count-1, 0; tries < 50; more, tries = 0, tries+1 { // one was counted
		w.mu.Lock()
		if !w.unheld {
			w.held += more
		}
		over := len(w.rules) == 0
		w.mu.Unlock()
		if over {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *wired) MeasureLinks(_ context.Context, peers []chaos.Node, m MeasureArgs) ([]MeasuredLink, error) {
	if w.looking(); w.dead {
		return nil, errors.New("no such process")
	}
	w.looks++
	w.paces = append(w.paces, m.Every)
	var out []MeasuredLink
	for i, n := range peers {
		peer, far := n.(*wired), m.Peers[i].Port
		l := MeasuredLink{Missing: peer.dead}
		if !peer.dead && m.Out {
			peer.holds(w, m.Count, far, m.Port)
			l.Out = w.flows(peer, m, m.Port, far)
		}
		if !peer.dead && m.In {
			l.In = peer.flows(w, m, far, m.Port)
		}
		if w.skewed != nil {
			w.skewed(w.looks, &l.Out)
			w.skewed(w.looks, &l.In)
		}
		out = append(out, l)
	}
	return out, nil
}

// shapeFaults lists the faults that shape links, with parameters that make each visible.
var shapeFaults = map[string]string{
	"delay": "{by: 50ms}", "loss": "{share: 30%}", "duplicate": "{share: 30%}", "reorder": "{share: 25%}", "corrupt": "{share: 10%}",
	"rate": "{limit: 1mbit}",
}

func TestFaultsThatShapeLinks(t *testing.T) {
	for name, params := range shapeFaults {
		for _, more := range []string{"", ", direction: out", ", direction: in", ", port: main", ", peer_port: 7001, to: [b]"} {
			params := strings.TrimSuffix(params, "}") + more + "}"
			c := wire("a", "b", "c")
			for _, n := range c.nodes {
				n.engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
			}
			var counted chaos.Counted
			heal, r, err := newFault(t, name, params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:], Run: &faulttest.Run{Counted: &counted}})
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, name+" "+params, r, history.Installed)
			if n, err := counted.Packets(t.Context()); err != nil || n != 0 {
				t.Errorf("%s %s: %d packets before any was sent, %v", name, params, n, err)
			}
			r, err = heal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, "heal of "+name, r, history.Installed)
			for _, n := range c.nodes {
				if len(n.rules) > 0 || len(n.shapings) > 0 {
					t.Errorf("%s %s: %s keeps %v", name, params, n.name, n.rules)
				}
			}
		}
	}
}

func TestEnginesStandAtTheirEndOfALink(t *testing.T) {
	for engine, at := range map[Engine]string{Netem: "a", Queue: "b"} {
		c := wire("a", "b")
		c.nodes[0].engines = map[Engine]string{engine: ""}
		if _, _, err := newFault(t, "delay", "{by: 50ms, direction: out}").Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]}); err != nil {
			t.Fatal(err)
		}
		for _, n := range c.nodes {
			if got := len(n.shapings) > 0; got != (n.name == at) {
				t.Errorf("%s: shapes at %s: %t", engine, n.name, got)
			}
		}
	}
}

func TestFaultsThatShapedNothing(t *testing.T) {
	for name, params := range shapeFaults {
		for _, s := range []struct {
			what     string
			sabotage func(a, b *wired)
			want     history.ReceiptStatus
			says     string
		}{
			{"an engine that does nothing", func(a, b *wired) { a.lame, b.lame = true, true }, history.NotInstalled, "the rules matched 0 packets"},
			{"an engine that gives up", func(_, b *wired) { b.broken = errors.New("no such queue") }, history.NotInstalled, "no such queue"},
			{"nobody at the other end", func(_, b *wired) { b.dead = true }, history.Indeterminate, "not measured"},
			{"a target without process", func(a, _ *wired) { a.dead = true }, history.Indeterminate, "could not be measured"},
			{"no engine", func(a, b *wired) {
				a.engines = map[Engine]string{Netem: "old", Queue: "no", TBF: "none"}
				b.engines = a.engines
			}, history.NotInstalled, "unavailable"},
		} {
			c := wire("a", "b")
			for _, n := range c.nodes {
				n.engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
			}
			s.sabotage(c.nodes[0], c.nodes[1])
			heal, r, err := newFault(t, name, strings.TrimSuffix(params, "}")+", direction: in}").Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:2]})
			if err != nil {
				r.Evidence += err.Error()
			}
			faulttest.WantStatus(t, name+", "+s.what, r, s.want)
			if !strings.Contains(r.Evidence, s.says) {
				t.Errorf("%s, %s: %q does not say %q", name, s.what, r.Evidence, s.says)
			}
			if heal == nil {
				t.Fatalf("%s, %s: there is no heal", name, s.what)
			}
		}
	}
}

func TestShapingThatWasNotHealed(t *testing.T) {
	for name, params := range shapeFaults {
		c := wire("a", "b")
		for _, n := range c.nodes {
			n.engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
			n.keeps = true
		}
		heal, _, err := newFault(t, name, params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := heal(t.Context()); err == nil || !strings.Contains(err.Error(), name+" still acts on a to b, from b") {
			t.Errorf("%s that stays: %v", name, err)
		}
	}
}

// acting changes a flow as if the fault acted on it.
func acting(f *Flow) {
	f.Arrived, f.Copies, f.Leapt, f.Damaged, f.Bits = f.Sent*2/3, f.Sent/3, f.Sent/3, uint64(f.Sent/3), 1e6
	late := 60 * time.Millisecond
	f.OneWay, f.Round = Spread{Low: late, Mid: late, High: late, Max: late}, Spread{Low: late, Mid: late, High: late, Max: late}
}

func TestHealLooksAgain(t *testing.T) {
	for name, params := range shapeFaults {
		for _, x := range []struct {
			what  string
			shows func(look int) bool // after the heal; before it are two
			looks int
			says  string // "" for a heal that went well
		}{
			{"nothing", func(int) bool { return false }, 1, ""},
			{"a burst", func(look int) bool { return look == 3 }, 2, ""},
			{"two bursts", func(look int) bool { return look == 3 || look == 4 }, 3, ""},
			{"a fault that stays", func(look int) bool { return look >= 3 }, mostLooks, name + " still acts on a to b, from b"},
		} {
			c := wire("a", "b")
			a := c.nodes[0]
			for _, n := range c.nodes {
				n.engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
			}
			heal, _, err := newFault(t, name, params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
			if err != nil || a.looks != 2 {
				t.Fatalf("%s: %d looks, %v", name, a.looks, err)
			}
			a.skewed = func(look int, f *Flow) {
				if x.shows(look) {
					acting(f)
				}
			}
			r, err := heal(t.Context())
			if a.looks-2 != x.looks {
				t.Errorf("%s, %s: %d looks after the heal, want %d", name, x.what, a.looks-2, x.looks)
			}
			if (err == nil) != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) {
				t.Errorf("%s, %s: %v, want %q", name, x.what, err, x.says)
			}
			if err == nil {
				faulttest.WantStatus(t, name+", "+x.what, r, history.Installed)
			}
			if again := strings.Contains(r.Evidence, "; the first one: to b, from b: "); again != (x.looks > 1) {
				t.Errorf("%s, %s: %d looks make %q", name, x.what, x.looks, r.Evidence)
			}
		}
	}
}

// TestHealThatIsSeenOnlyOnce leaves links unmeasured after a look that showed the fault: that does not clear it.
func TestHealThatIsSeenOnlyOnce(t *testing.T) {
	c := wire("a", "b")
	a, b := c.nodes[0], c.nodes[1]
	heal, _, err := newFault(t, "delay", "{by: 50ms}").Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
	if err != nil {
		t.Fatal(err)
	}
	a.skewed = func(_ int, f *Flow) {
		acting(f)
		b.dead = true
	}
	if _, err := heal(t.Context()); err == nil || !strings.Contains(err.Error(), "still acts") {
		t.Errorf("a link that was seen delayed, and then not at all: %v", err)
	}
}

func TestLinksThatAreUnsteadyBefore(t *testing.T) {
	for _, x := range []struct {
		what   string
		lame   bool
		skewed func(look int, f *Flow)
		looks  int
		want   history.ReceiptStatus
	}{
		{"steady", false, nil, 2, history.Installed},
		{"steady, and nothing shaped", true, nil, 2, history.NotInstalled},
		{"crowded, and calm when there are fewer", false, func(look int, f *Flow) {
			if look == 1 {
				f.OneWay.High += 100 * time.Millisecond
			}
		}, 3, history.Installed},
		{"slow before only", false, func(look int, f *Flow) {
			if look <= 2 {
				f.OneWay = Spread{Low: 40 * time.Millisecond, Mid: 90 * time.Millisecond, High: 200 * time.Millisecond}
			}
		}, 4, history.Indeterminate},
		{"slow until the second look", false, func(look int, f *Flow) {
			if look <= 2 {
				f.OneWay.High += 100 * time.Millisecond
			}
			if look == 3 {
				f.OneWay.Low -= 40 * time.Millisecond
			}
		}, 4, history.Installed},
		{"unsteady, and nothing shaped", true, func(look int, f *Flow) { f.OneWay.High += 100 * time.Millisecond }, 4, history.NotInstalled},
	} {
		c := wire("a", "b")
		a := c.nodes[0]
		a.lame, a.skewed = x.lame, x.skewed
		c.nodes[1].lame = x.lame
		_, r, err := newFault(t, "delay", "{by: 50ms}").Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, x.what, r, x.want)
		if a.looks != x.looks {
			t.Errorf("%s: %d looks, want %d", x.what, a.looks, x.looks)
		}
		for i, pace := range a.paces {
			if want := time.Millisecond; i == 0 && pace != want || i > 0 && x.looks > 2 && pace != sparser*want {
				t.Errorf("%s: look %d sends a datagram each %v", x.what, i+1, pace)
			}
		}
		if again := strings.Contains(r.Evidence, "this is the second measurement"); again != (x.looks > 3) {
			t.Errorf("%s: %q", x.what, r.Evidence)
		}
	}
}

// TestBurstsBeforeTheFault makes the links lose, repeat and delay datagrams at the first look, before the fault.
func TestBurstsBeforeTheFault(t *testing.T) {
	for name, params := range shapeFaults {
		c := wire("a", "b")
		a := c.nodes[0]
		for _, n := range c.nodes {
			n.engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
		}
		a.skewed = func(look int, f *Flow) {
			if look == 1 {
				acting(f)
				f.OneWay.High += time.Second
			}
		}
		_, r, err := newFault(t, name, params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		if err != nil {
			t.Fatal(err)
		}
		if faulttest.WantStatus(t, name, r, history.Installed); a.looks != 3 {
			t.Errorf("%s: %d looks, want two before and one after: %s", name, a.looks, r.Evidence)
		}
	}
}

func TestJitterThatDoesNotShow(t *testing.T) {
	const asked = "{by: 50ms, jitter: 20ms}"
	steady := func(look int, f *Flow) {
		if look == 2 {
			f.OneWay.Low, f.OneWay.High = f.OneWay.Mid, f.OneWay.Mid
		}
	}
	for _, x := range []struct {
		what, params string
		skewed       func(look int, f *Flow)
		want         history.ReceiptStatus
	}{
		{"as asked", asked, nil, history.Installed},
		{"correlated", "{by: 50ms, jitter: 20ms, correlation: 25%}", nil, history.Installed},
		{"a delay that is always the same", asked, steady, history.NotInstalled},
		{"too little to judge", "{by: 50ms, jitter: 1ms}", steady, history.Installed},
		{"too much correlation to judge", "{by: 50ms, jitter: 20ms, correlation: 60%}", steady, history.Installed},
		{"times that differed as much before", asked, func(_ int, f *Flow) { f.OneWay.High = f.OneWay.Low + 25*time.Millisecond }, history.Indeterminate},
	} {
		c := wire("a", "b")
		c.nodes[0].skewed = x.skewed
		heal, r, err := newFault(t, "delay", x.params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, x.what, r, x.want)
		if lacks := strings.Contains(r.Evidence, "the rest of the request is not visible to b, from b"); lacks != (x.want != history.Installed) {
			t.Errorf("%s: %s", x.what, r.Evidence)
		}
		if told := strings.Contains(r.Evidence, "the correlation of successive packets was not measured"); told != strings.Contains(x.params, "correlation") {
			t.Errorf("%s: %s", x.what, r.Evidence)
		}
		if _, err := heal(t.Context()); err != nil {
			t.Errorf("%s: %v", x.what, err)
		}
	}
}

func TestShapingsOfOneLinkHealIndependently(t *testing.T) {
	c := wire("a", "b")
	s := chaos.Scope{On: c.list()[:1], Peers: c.list()[1:], LinkFaults: &chaos.LinkFaults{}}
	late := faulttest.Injected(t, "the delay", newFault(t, "delay", "{by: 50ms}"), s)
	lossy := faulttest.Injected(t, "the loss", newFault(t, "loss", "{share: 30%}"), s)
	later := faulttest.Injected(t, "the second delay", newFault(t, "delay", "{by: 20ms}"), s)
	for _, heal := range []chaos.Heal{late, later, lossy} {
		if _, err := heal(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestFaultsThatShapeLinksRefuse(t *testing.T) {
	for name, params := range map[string][]string{
		"delay": {
			"{}", "{by: 0s}", "{by: 10s}", "{by: 10ms, jitter: 20ms}", "{by: 10ms, correlation: 20%}", "{by: 10ms, engine: tc}",
			"{by: 10ms, direction: up}", "{by: 10ms, jitter: 5ms, correlation: 95%}", "{by: 10ms, from: b}",
		},
		"loss":      {"{}", "{share: 0%}", "{share: 0.01%}", "{share: 120%}", "{share: 0.3}", "{share: -1%}", "{share: NaN%}", "{share: [30%]}"},
		"duplicate": {"{}", "{share: 10%, engine: queue}", "{share: 10%, correlation: 91%}"},
		"reorder":   {"{}", "{share: 100%}", "{share: 10%, by: 1ms}"},
		"corrupt":   {"{}", "{share: 101%}"},
		"rate":      {"{}", "{limit: 1000}", "{limit: 1gbit}", "{limit: 1kbit}", "{limit: 1000mbit}", "{limit: 1mbit, engine: netem}", "{limit: -1mbit}"},
	} {
		k := faulttest.Kind(t, Kinds(), name)
		for _, p := range params {
			if _, err := k.New(faulttest.Decoding(p)); err == nil {
				t.Errorf("%s %s was taken", name, p)
			}
		}
	}
	for p, want := range map[string]chaos.Capability{"auto": CanShape, "netem": CanNetem, "queue": CanQueue} {
		f := newFault(t, "delay", "{by: 10ms, engine: "+p+"}")
		if got := f.(chaos.Needing).Needs(); len(got) != 1 || got[0] != want {
			t.Errorf("engine %s needs %v", p, got)
		}
	}
}

func TestProportion(t *testing.T) {
	for _, x := range []struct {
		what       string
		proportion proportion
		want       history.ReceiptStatus
	}{
		{"as asked", proportion{share: 0.3, ofWas: 100, is: 30, of: 100}, history.Installed},
		{"more than asked", proportion{share: 0.3, ofWas: 100, is: 60, of: 100}, history.Installed},
		{"none", proportion{share: 0.3, ofWas: 100, of: 100}, history.NotInstalled},
		{"next to none", proportion{share: 0.3, ofWas: 100, is: 2, of: 100}, history.NotInstalled},
		{"none of too few", proportion{share: 0.01, ofWas: 100, of: 100}, history.Indeterminate},
		{"as before", proportion{share: 0.3, was: 30, ofWas: 100, is: 30, of: 100}, history.Indeterminate},
		{"more than before", proportion{share: 0.3, was: 10, ofWas: 100, is: 37, of: 100}, history.Installed},
		{"nothing was sent", proportion{share: 0.3}, history.Indeterminate},
		{"none of few, since they are correlated", proportion{share: 0.3, correlation: 0.9, ofWas: 100, of: 100}, history.Indeterminate},
	} {
		if got := x.proportion.status(); got != x.want {
			t.Errorf("%s: %s, want %s", x.what, got, x.want)
		}
	}
	for _, x := range []struct {
		k, n int
		p    float64
		want float64
	}{{0, 10, 0.5, 1.0 / 1024}, {5, 10, 0.5, 0.623}, {10, 10, 0.5, 1}, {-1, 10, 0.5, 0}, {3, 10, 0, 1}, {3, 10, 1, 0}} {
		if got := atMost(x.k, x.n, x.p); math.Abs(got-x.want) > 1e-3 {
			t.Errorf("at most %d of %d by %v: %v, want %v", x.k, x.n, x.p, got, x.want)
		}
	}
	if n := enoughFor(0.01, 0).Count; atMost(0, n, 0.005) > doubt {
		t.Errorf("%d are not enough for 1 %%", n)
	}
}
