package links

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

func TestSidesOfAMeasurementAreJoined(t *testing.T) {
	p := MeasureArgs{Peers: make([]ProbeEnd, 2), Count: 10, Out: true, In: true}.Plan()
	round := Spread{Low: 2 * time.Millisecond, Mid: 3 * time.Millisecond, High: 4 * time.Millisecond, Max: 5 * time.Millisecond}
	days := Spread{Low: 48 * time.Hour, Mid: 48*time.Hour + time.Millisecond, High: 48*time.Hour + 2*time.Millisecond, Max: 48*time.Hour + 3*time.Millisecond}
	one := Spread{Low: time.Millisecond, Mid: time.Millisecond, High: time.Millisecond, Max: time.Millisecond}
	here := Flow{Sent: 10, Arrived: 10, OneWay: one, Round: round, Bits: 7}
	nothing := Flow{Sent: 10}
	target := Sight{Flows: []Flow{here, here, {Sent: 10, Round: round}, nothing}}
	peer := Sight{Flows: []Flow{nothing, nothing, {Sent: 10, Arrived: 8, Copies: 1, Leapt: 2, OneWay: days, Bits: 9, Damaged: 2}, {Sent: 10, Round: round}}}
	seen, err := p.Join([]Sight{target, peer}, []int{0, 0, 1})
	if err != nil {
		t.Fatal(err)
	}
	var m Measured
	m.Take(p, seen)
	want := Measured{Peers: []MeasuredLink{{Out: here, In: here}, {
		Out: Flow{
			Sent: 10, Arrived: 8, Copies: 1, Leapt: 2, Bits: 9, Damaged: 2, Round: round, TwoClocks: true,
			OneWay: Spread{Low: time.Millisecond, Mid: 2 * time.Millisecond, High: 3 * time.Millisecond, Max: 4 * time.Millisecond},
		},
		In: Flow{Sent: 10, Round: round, TwoClocks: true},
	}}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("joined: %+v\nwant:   %+v", m, want)
	}
	if _, err := p.Join([]Sight{target, {Flows: peer.Flows[:3]}}, []int{0, 0, 1}); err == nil {
		t.Error("an agent that tells of too few flows is believed")
	}
}

func TestSidesOfAProbeAreJoined(t *testing.T) {
	p := ProbeArgs{Peers: make([]ProbeEnd, 1), Patience: time.Second, DialOut: true}.Plan()
	target := Sight{Control: "refused", Arrivals: []Arrival{{Arrived: true, Sent: 1}, {Sent: 3, After: time.Millisecond, Dial: Connected, Took: 2}, {Arrived: true, Sent: 1, After: 9}}}
	peer := Sight{Arrivals: []Arrival{{}, {Arrived: true, Sent: 1, After: time.Hour}, {Sent: 4}}}
	seen, err := p.Join([]Sight{target, peer}, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	var r ProbeResult
	r.Take(p, seen)
	want := ProbeResult{Self: true, Control: "refused", Peers: []Seen{{
		Out: Arrival{Arrived: true, Sent: 3, After: time.Millisecond, Dial: Connected, Took: 2},
		In:  Arrival{Arrived: true, Sent: 4, After: 9}, // no echo came back: the receiver's view
	}}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("joined: %+v\nwant:   %+v", r, want)
	}
}

// byTwoClocks returns what would be known of a flow to a node of another agent, whose one-way times need two clocks.
func (w *wired) byTwoClocks(to *wired, f Flow, echo bool, port, peerPort uint16) Flow {
	var back Shaping
	to.shapes(w, true, peerPort, port, &back)
	w.shapes(to, false, port, peerPort, &back)
	there, again := f.OneWay.Mid, 50*time.Microsecond+back.Delay
	sender, receiver := Flow{Sent: f.Sent}, f
	if echo {
		sender.Round = Spread{Low: f.OneWay.Low + again - back.Jitter, Mid: there + again, High: f.OneWay.High + again + back.Jitter, Max: f.OneWay.Max + again + back.Jitter}
	}
	apart := 5 * time.Hour
	receiver.Round, receiver.OneWay = Spread{}, Spread{Low: f.OneWay.Low + apart, Mid: there + apart, High: f.OneWay.High + apart, Max: f.OneWay.Max + apart}
	return joinFlows(sender, receiver)
}

func TestFaultsThatShapeLinksOfTwoHosts(t *testing.T) {
	for name, params := range shapeFaults {
		for _, more := range []string{"", ", direction: out", ", direction: in"} {
			params := strings.TrimSuffix(params, "}") + more + "}"
			c := wire("a", "b", "c")
			for _, n := range c.nodes {
				n.engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
			}
			c.nodes[2].host = "another"
			heal, r, err := newFault(t, name, params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(r.Evidence)
			faulttest.WantStatus(t, name+" "+params, r, history.Installed)
			for says, want := range map[string]bool{"one way takes": name == "delay" || name == "reorder", "a round trip takes": name == "delay", "h0m": false} {
				if strings.Contains(r.Evidence, says) != want {
					t.Errorf("%s %s: %q says %q: %t", name, params, r.Evidence, says, !want)
				}
			}
			if r, err = heal(t.Context()); err != nil {
				t.Fatal(err)
			}
			faulttest.WantStatus(t, "heal of "+name, r, history.Installed)
		}
	}
}

// TestDelaysBetweenHosts sabotages delays whose one-way times need two clocks.
func TestDelaysBetweenHosts(t *testing.T) {
	for _, s := range []struct {
		what, params string
		sabotage     func(a, b *wired)
		want         history.ReceiptStatus
	}{
		{"both ways", "{by: 50ms}", func(_, _ *wired) {}, history.Installed},
		{"a short one", "{by: 1ms}", func(_, _ *wired) {}, history.Installed},
		{"one way of both", "{by: 50ms}", func(a, _ *wired) { a.lame = true }, history.NotInstalled},
		{"the other way of both", "{by: 50ms}", func(_, b *wired) { b.lame = true }, history.NotInstalled},
		{"neither way", "{by: 50ms}", func(a, b *wired) { a.lame, b.lame = true, true }, history.NotInstalled},
		{"the way that was asked for", "{by: 50ms, direction: out}", func(_, b *wired) { b.lame = true }, history.Installed},
		{"not the way that was asked for", "{by: 50ms, direction: in}", func(_, b *wired) { b.lame = true }, history.NotInstalled},
		{"with jitter", "{by: 50ms, jitter: 20ms}", func(_, _ *wired) {}, history.Installed},
		{"with much jitter", "{by: 50ms, jitter: 50ms, direction: out}", func(_, _ *wired) {}, history.Installed},
		{"no echo", "{by: 50ms}", func(a, _ *wired) {
			a.skewed = func(_ int, f *Flow) { f.Round = Spread{} }
		}, history.Indeterminate},
		{"moved to another host meanwhile", "{by: 50ms}", func(a, _ *wired) {
			a.skewed = func(look int, f *Flow) { f.TwoClocks = look > 1 }
		}, history.Indeterminate},
	} {
		c := wire("a", "b")
		a, b := c.nodes[0], c.nodes[1]
		for _, n := range c.nodes {
			n.engines = map[Engine]string{Netem: ""}
		}
		b.host = "another"
		s.sabotage(a, b)
		_, r, err := newFault(t, "delay", s.params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		if err != nil {
			t.Fatal(err)
		}
		faulttest.WantStatus(t, s.what, r, s.want)
	}
}

// TestEnginesOfSeveralKernels: a's has them all, and b's has no netem.
func TestEnginesOfSeveralKernels(t *testing.T) {
	for _, x := range []struct{ params, by, says string }{
		{"{by: 50ms}", string(Queue), ""},
		{"{by: 50ms, direction: out}", string(Netem), ""},
		{"{by: 50ms, direction: in}", string(Queue), ""},
		{"{by: 50ms, engine: netem}", "", "netem of the kernel: old (where b is)"},
		{"{by: 50ms, engine: netem, direction: in}", "", "netem of the kernel: old (where b is)"},
	} {
		c := wire("a", "b")
		c.nodes[0].engines = map[Engine]string{Netem: "", Queue: "", TBF: ""}
		c.nodes[1].engines = map[Engine]string{Netem: "old", Queue: "", TBF: ""}
		_, r, err := newFault(t, "delay", x.params).Inject(t.Context(), chaos.Scope{On: c.list()[:1], Peers: c.list()[1:]})
		if (err == nil) != (x.says == "") || err != nil && !strings.Contains(err.Error(), x.says) || r.By != x.by {
			t.Errorf("%s by %q: %v, want %q", x.params, r.By, err, x.says)
		}
	}
}
