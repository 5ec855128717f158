//go:build integration

package agent

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// shaped puts a shaping up on what goes from x to y.
func shaped(t *testing.T, c *Client, key string, x, y cabled, s Shaping, ports ...uint16) {
	t.Helper()
	at, r := x, Rule{Peer: y.address, Out: true, How: Shape}
	if s.Engine == EngineQueue {
		at, r = y, Rule{Peer: x.address, How: Shape}
	}
	if len(ports) > 0 {
		r.PeerPort = ports[0] // of x, at y
	}
	if err := c.Order(t.Context(), Order{Do: DoFilter, Process: at.Process, Key: key, Args: FilterArgs{Rules: []Rule{r}, Shaping: &s}}, nil); err != nil {
		t.Fatal(err)
	}
}

// pace is the time between two datagrams: what a slow machine can send. The guest of make test-netem is slower still: at a
// millisecond, what goes both ways with its echoes waits for its processor, longer than for the link.
var pace = func() time.Duration {
	if os.Getenv("LOCKQUAKE_TEST_NETEM") == "required" {
		return 3 * time.Millisecond
	}
	return time.Millisecond
}()

// about tells whether a share of n is what was asked for; five standard deviations are some, and correlation makes more.
func about(k, n int, share float64) bool {
	return float64(k) > float64(n)*share*0.5 && float64(k) < float64(n)*share*1.6
}

// engines lists those to be tested: netem only where the kernel has it, which is said.
func engines(t *testing.T) []string {
	t.Helper()
	e := TryEngines()
	if os.Getenv("LOCKQUAKE_TEST_NETEM") == "required" { // a kernel that may have no packet filter
		if e.Netem != "" {
			t.Fatal(e.Netem)
		}
		t.Logf("the queue: %q", e.Queue)
		return []string{EngineNetem}
	}
	if e.Queue != "" {
		if os.Geteuid() != 0 {
			t.Skip(e.Queue)
		}
		t.Fatal(e.Queue)
	}
	if e.Netem != "" {
		t.Logf("netem is not tested here (make test-netem does): %s", e.Netem)
		return []string{EngineQueue}
	}
	return []string{EngineQueue, EngineNetem}
}

func TestShaping(t *testing.T) {
	for _, engine := range engines(t) {
		for _, s := range []struct {
			name    string
			shaping Shaping
			bites   func(l stoodLink) bool
		}{
			{"delay", Shaping{Delay: 300 * time.Millisecond}, func(l stoodLink) bool {
				return l.Out.Arrived == l.Out.Sent && l.near(l.Out.OneWay.Low, 300*time.Millisecond) && l.near(l.Out.Round.Low, 300*time.Millisecond) && l.Out.Leapt == 0
			}},
			{"jitter", Shaping{Delay: 300 * time.Millisecond, Jitter: 100 * time.Millisecond, Correlation: 0.25}, func(l stoodLink) bool {
				return l.Out.Arrived == l.Out.Sent && l.Out.OneWay.Mid > 250*time.Millisecond && l.Out.OneWay.Low > 200*time.Millisecond &&
					l.Out.OneWay.High-l.Out.OneWay.Low > 50*time.Millisecond && l.Out.Leapt > 0
			}},
			{"loss", Shaping{Loss: 0.3}, func(l stoodLink) bool { return about(l.Out.Sent-l.Out.Arrived, l.Out.Sent, 0.3) }},
			{"correlated loss", Shaping{Loss: 0.3, Correlation: 0.25}, func(l stoodLink) bool { return about(l.Out.Sent-l.Out.Arrived, l.Out.Sent, 0.3) }},
			{"reorder", Shaping{Delay: 10 * time.Millisecond, Reorder: 0.25}, func(l stoodLink) bool { return about(l.Out.Leapt, l.Out.Sent, 0.25) }},
			{"corrupt", Shaping{Corrupt: 0.3}, func(l stoodLink) bool { return about(l.Out.Sent-l.Out.Arrived, l.Out.Sent, 0.3) && l.Out.Damaged > 0 }},
			{"duplicate", Shaping{Duplicate: 0.3}, func(l stoodLink) bool { return about(l.Out.Copies, l.Out.Sent, 0.3) && l.Out.Arrived == l.Out.Sent }},
		} {
			if s.shaping.Duplicate > 0 && engine == EngineQueue {
				continue // it cannot: one packet is in the kernel, and one verdict on it
			}
			t.Run(engine+"/"+s.name, func(t *testing.T) {
				c, _ := inMemory(t)
				x, y := cabledPair(t, c)
				s.shaping.Engine = engine
				shaped(t, c, "s/x", x, y, s.shaping)
				m := gauged(t, c, x, y, 400, pace)
				if !s.bites(m) {
					t.Errorf("%+v shows itself as %+v", s.shaping, m.Out)
				}
				// What comes from y is not shaped, but its echo is.
				if m.In.Arrived != m.In.Sent || !m.near(m.In.OneWay.Low, 0) || m.In.Copies > 0 {
					t.Errorf("the other direction is shaped too: %+v", m.In)
				}
				u := unfiltered(t, c, "s/x")
				t.Logf("%+v, %+v", u, u.Shaped)
				if u.Packets == 0 || u.Shaped == nil || u.Shaped.Engine != engine || u.Shaped.Passed == 0 || len(u.Left) > 0 {
					t.Errorf("undone: %+v %+v", u, u.Shaped)
				}
				untouched(t, x, y)
				openBothWays(t, c, x, y)
				if m := gauged(t, c, x, y, 100, pace); m.Out.Arrived != m.Out.Sent || !m.near(m.Out.OneWay.Low, 0) {
					t.Errorf("undone, but still: %+v", m.Out)
				}
			})
		}
	}
}

func TestShapingsCompose(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			c, _ := inMemory(t)
			x, y := cabledPair(t, c)
			shaped(t, c, "late", x, y, Shaping{Engine: engine, Delay: 200 * time.Millisecond})
			shaped(t, c, "lossy", x, y, Shaping{Engine: engine, Loss: 0.3})
			shaped(t, c, "later", x, y, Shaping{Engine: engine, Delay: 400 * time.Millisecond})
			m := gauged(t, c, x, y, 400, pace)
			if !m.near(m.Out.OneWay.Low, 600*time.Millisecond) || !about(m.Out.Sent-m.Out.Arrived, m.Out.Sent, 0.3) {
				t.Errorf("two delays and a loss: %+v", m.Out)
			}
			if u := unfiltered(t, c, "late"); u.Others != 2 || len(u.Left) > 0 {
				t.Errorf("undone: %+v", u)
			}
			m = gauged(t, c, x, y, 400, pace)
			if !m.near(m.Out.OneWay.Low, 400*time.Millisecond) || !about(m.Out.Sent-m.Out.Arrived, m.Out.Sent, 0.3) {
				t.Errorf("a delay and a loss: %+v", m.Out)
			}
			unfiltered(t, c, "lossy")
			m = gauged(t, c, x, y, 100, pace)
			if !m.near(m.Out.OneWay.Low, 400*time.Millisecond) || m.Out.Arrived != m.Out.Sent {
				t.Errorf("the second delay alone: %+v", m.Out)
			}
			unfiltered(t, c, "later")
			untouched(t, x, y)
			openBothWays(t, c, x, y)
		})
	}
}

// TestShapingsOfPorts hits the datagrams from one port by one, those to another by another, and those of both by both.
func TestShapingsOfPorts(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			c, _ := inMemory(t)
			x, y := cabledPair(t, c)
			at, from, to := x, Rule{Peer: y.address, Out: true, How: Shape, Port: 6379}, Rule{Peer: y.address, Out: true, How: Shape, PeerPort: 7000}
			if engine == EngineQueue {
				at, from, to = y, Rule{Peer: x.address, How: Shape, PeerPort: 6379}, Rule{Peer: x.address, How: Shape, Port: 7000}
			}
			put := func(key string, r Rule, by time.Duration) {
				args := FilterArgs{Rules: []Rule{r}, Shaping: &Shaping{Engine: engine, Delay: by}}
				if err := c.Order(t.Context(), Order{Do: DoFilter, Process: at.Process, Key: key, Args: args}, nil); err != nil {
					t.Fatal(err)
				}
			}
			put("from/x", from, 200*time.Millisecond)
			put("to/x", to, 400*time.Millisecond)
			for _, a := range []struct {
				port, theirs uint16
				late         time.Duration
			}{{0, 0, 0}, {6379, 0, 200 * time.Millisecond}, {0, 7000, 400 * time.Millisecond}, {6379, 7000, 600 * time.Millisecond}, {7000, 6379, 0}} {
				m := measuredWith(t, c, x, y, MeasureArgs{
					ProbeEnd: ProbeEnd{Address: x.address, Port: a.port}, Peers: []ProbeEnd{{Address: y.address, Port: a.theirs}}, Count: 50,
					Every: pace, Out: true, Patience: time.Second,
				})
				if f := m.Out; !m.near(f.OneWay.Low, a.late) || f.Arrived != f.Sent {
					t.Errorf("from port %d to port %d: %+v, want %v", a.port, a.theirs, f, a.late)
				}
			}
			unfiltered(t, c, "from/x")
			unfiltered(t, c, "to/x")
		})
	}
}

func TestShapingsGoWithTheControlStream(t *testing.T) {
	for _, engine := range engines(t) {
		c, ended := inMemory(t)
		x, y := cabledPair(t, c)
		for _, key := range []string{"one/x", "two/x"} {
			shaped(t, c, key, x, y, Shaping{Engine: engine, Delay: 500 * time.Millisecond})
		}
		begin := time.Now()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		goneInTime(t, "shapings", begin)
		untouched(t, x, y)
		c, _ = inMemory(t)
		for _, e := range []*cabled{&x, &y} {
			var err error
			if e.Process, err = c.Own(t.Context(), e.PID, false); err != nil {
				t.Fatal(err)
			}
		}
		openBothWays(t, c, x, y)
	}
}

// streamed measures what the link from x to y carries of twice a rate.
func streamed(t *testing.T, c *Client, x, y cabled, bits float64) MeasuredLink {
	t.Helper()
	const size = 1000
	every := time.Duration(float64((size+wireHead)*8) / (2 * bits) * float64(time.Second))
	var m Measured
	err := c.Order(t.Context(), Order{Do: DoMeasure, Process: x.Process, With: []Process{y.Process}, Args: MeasureArgs{
		ProbeEnd: ProbeEnd{Address: x.address}, Peers: []ProbeEnd{{Address: y.address}}, Count: int(time.Second / every), Every: every, Size: size,
		Out: true, In: true, Patience: 500 * time.Millisecond,
	}}, &m)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("to %+v", m.Peers[0].Out)
	t.Logf("from %+v", m.Peers[0].In)
	return m.Peers[0]
}

func TestRate(t *testing.T) {
	if e := TryEngines(); e.TBF != "" {
		if os.Geteuid() != 0 {
			t.Skip(e.TBF)
		}
		t.Fatal(e.TBF)
	}
	const limit = 500_000
	c, _ := inMemory(t)
	x, y := cabledPair(t, c)
	z := "10.99.0.9" // nobody: another class beside
	shaped(t, c, "slow/x", x, y, Shaping{Engine: EngineTBF, Rate: limit})
	shaped(t, c, "other/x", x, cabled{address: z}, Shaping{Engine: EngineTBF, Rate: limit})
	m := streamed(t, c, x, y, limit)
	if m.Out.Bits > 1.2*limit || m.In.Bits < 1.25*limit {
		t.Errorf("limited to %d: %.0f to, %.0f from", limit, m.Out.Bits, m.In.Bits)
	}
	late := Shaping{Engine: engines(t)[0], Delay: 300 * time.Millisecond}
	shaped(t, c, "late/x", x, y, late)
	if d := gauged(t, c, x, y, 50, 5*time.Millisecond); !d.near(d.Out.OneWay.Low, 300*time.Millisecond) || d.Out.Arrived != d.Out.Sent {
		t.Errorf("slow and late: %+v", d.Out)
	}
	unfiltered(t, c, "late/x")
	if u := unfiltered(t, c, "other/x"); u.Others != 1 || len(u.Left) > 0 {
		t.Errorf("undone: %+v", u)
	}
	if m := streamed(t, c, x, y, limit); m.Out.Bits > 1.2*limit {
		t.Errorf("another limit was undone, and now: %+v", m.Out)
	}
	u := unfiltered(t, c, "slow/x")
	t.Logf("%+v, %+v", u, u.Shaped)
	if u.Shaped == nil || u.Shaped.Passed == 0 || u.Shaped.Dropped == 0 || u.Others > 0 || len(u.Left) > 0 {
		t.Errorf("undone: %+v, %+v", u, u.Shaped)
	}
	if stands, err := ownRoot(x.space); err != nil || stands {
		t.Errorf("traffic control stands: %t, %v", stands, err)
	}
	untouched(t, x, y)
	if m := streamed(t, c, x, y, limit); m.Out.Bits < 1.25*limit {
		t.Errorf("the limit was undone, and now: %+v", m.Out)
	}
}

// TestTreeOfAnAgentThatDied finds traffic control of ours that nobody accounts for.
func TestTreeOfAnAgentThatDied(t *testing.T) {
	if e := TryEngines(); e.TBF != "" {
		t.Skip(e.TBF)
	}
	dead, _ := inMemory(t)
	x, y := cabledPair(t, dead)
	if _, err := newLinks().tree(x.space).add(x.space, &branch{rules: []Rule{{Peer: y.address, Out: true, How: Shape}}, shaping: Shaping{Engine: EngineTBF, Rate: 1e6}}); err != nil {
		t.Fatal(err)
	}
	c, _ := inMemory(t)
	var err error
	if x.Process, err = c.Own(t.Context(), x.PID, false); err != nil {
		t.Fatal(err)
	}
	if FilterSupported() == nil {
		filtered(t, c, "other", x, Rule{Peer: "10.99.0.77", How: Drop})
		if u := unfiltered(t, c, "other"); len(u.Left) != 1 {
			t.Errorf("traffic control that nobody accounts for: %+v", u)
		}
	}
	if stands, err := ownRoot(x.space); err != nil || !stands {
		t.Fatalf("traffic control stands: %t, %v", stands, err)
	}
	shaped(t, c, "slow/x", x, y, Shaping{Engine: EngineTBF, Rate: 1e6})
	if u := unfiltered(t, c, "slow/x"); len(u.Left) > 0 {
		t.Errorf("undone: %+v", u)
	}
}

func TestTreeRefuses(t *testing.T) {
	if e := TryEngines(); e.TBF != "" {
		t.Skip(e.TBF)
	}
	c, _ := inMemory(t)
	x, y := cabledPair(t, c)
	slow := Shaping{Engine: EngineTBF, Rate: 1e6}
	for i := range treeFaults {
		shaped(t, c, fmt.Sprintf("slow%d/x", i), x, y, slow)
	}
	out := Rule{Peer: y.address, Out: true, How: Shape}
	for what, a := range map[string]FilterArgs{
		"one fault too many":    {Rules: []Rule{out}, Shaping: &slow},
		"what is sent to it":    {Rules: []Rule{{Peer: y.address, How: Shape}}, Shaping: &slow},
		"no shaping":            {Rules: []Rule{out}},
		"a rule that holds too": {Rules: []Rule{out, {Peer: y.address, How: Hold}}, Shaping: &slow},
	} {
		if err := c.Order(t.Context(), Order{Do: DoFilter, Process: x.Process, Key: "bad/x", Args: a}, nil); err == nil {
			t.Errorf("%s was taken", what)
		}
		_ = c.Undo(t.Context(), "bad/x", nil)
	}
	for i := range treeFaults {
		unfiltered(t, c, fmt.Sprintf("slow%d/x", i))
	}
	if stands, err := ownRoot(x.space); err != nil || stands {
		t.Errorf("traffic control stands: %t, %v", stands, err)
	}
}
