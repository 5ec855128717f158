//go:build integration

package links

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// shaped installs a shaping of the packets from x to y.
func shaped(t *testing.T, c *agent.Client, key string, x, y cabled, s links.Shaping, ports ...uint16) {
	t.Helper()
	at, r := x, links.Rule{Peer: y.address, Out: true, How: links.Shape}
	if s.Engine == links.Queue {
		at, r = y, links.Rule{Peer: x.address, How: links.Shape}
	}
	if len(ports) > 0 {
		r.PeerPort = ports[0] // of x, at y
	}
	if err := c.Order(t.Context(), agent.Order{Do: links.DoFilter, Process: at.Process, Key: key, Args: links.FilterArgs{Rules: []links.Rule{r}, Shaping: &s}}, nil); err != nil {
		t.Fatal(err)
	}
}

// pace is the time between two datagrams that a slow machine can sustain. The guest of make test-netem is slower still:
// at 1 ms, datagrams both ways with echoes wait longer for its CPU than for the link.
var pace = func() time.Duration {
	if os.Getenv("LOCKQUAKE_TEST_NETEM") == "required" {
		return 3 * time.Millisecond
	}
	return time.Millisecond
}()

// about reports whether k is the requested share of n. With 400 datagrams, chance exceeds the bounds less than once in
// a million times: they are 5 standard deviations away for a correlated loss, and more for all others.
func about(k, n int, share float64) bool {
	return float64(k) > float64(n)*share*0.5 && float64(k) < float64(n)*share*1.6
}

// engines lists those to be tested: netem only where the kernel has it, which is said.
func engines(t *testing.T) []links.Engine {
	t.Helper()
	e := tryEngines()
	if os.Getenv("LOCKQUAKE_TEST_NETEM") == "required" { // a kernel that may have no packet filter
		if e[links.Netem] != "" {
			t.Fatal(e[links.Netem])
		}
		t.Logf("the queue: %q", e[links.Queue])
		return []links.Engine{links.Netem}
	}
	if e[links.Queue] != "" {
		if os.Geteuid() != 0 {
			t.Skip(e[links.Queue])
		}
		t.Fatal(e[links.Queue])
	}
	if e[links.Netem] != "" {
		t.Logf("netem is not tested here (make test-netem does): %s", e[links.Netem])
		return []links.Engine{links.Queue}
	}
	return []links.Engine{links.Queue, links.Netem}
}

func TestShaping(t *testing.T) {
	for _, engine := range engines(t) {
		for _, s := range []struct {
			name    string
			shaping links.Shaping
			bites   func(l stoodLink) bool
		}{
			{"delay", links.Shaping{Delay: 300 * time.Millisecond}, func(l stoodLink) bool {
				return l.Out.Arrived == l.Out.Sent && l.near(l.Out.OneWay.Low, 300*time.Millisecond) && l.near(l.Out.Round.Low, 300*time.Millisecond) && l.Out.Leapt == 0
			}},
			{"jitter", links.Shaping{Delay: 300 * time.Millisecond, Jitter: 100 * time.Millisecond, Correlation: 0.25}, func(l stoodLink) bool {
				return l.Out.Arrived == l.Out.Sent && l.Out.OneWay.Mid > 250*time.Millisecond && l.Out.OneWay.Low > 200*time.Millisecond &&
					l.Out.OneWay.High-l.Out.OneWay.Low > 50*time.Millisecond && l.Out.Leapt > 0
			}},
			{"loss", links.Shaping{Loss: 0.3}, func(l stoodLink) bool { return about(l.Out.Sent-l.Out.Arrived, l.Out.Sent, 0.3) }},
			{"correlated loss", links.Shaping{Loss: 0.3, Correlation: 0.25}, func(l stoodLink) bool { return about(l.Out.Sent-l.Out.Arrived, l.Out.Sent, 0.3) }},
			{"reorder", links.Shaping{Delay: 10 * time.Millisecond, Reorder: 0.25}, func(l stoodLink) bool { return about(l.Out.Leapt, l.Out.Sent, 0.25) }},
			{"corrupt", links.Shaping{Corrupt: 0.3}, func(l stoodLink) bool { return about(l.Out.Sent-l.Out.Arrived, l.Out.Sent, 0.3) && l.Out.Damaged > 0 }},
			{"duplicate", links.Shaping{Duplicate: 0.3}, func(l stoodLink) bool { return about(l.Out.Copies, l.Out.Sent, 0.3) && l.Out.Arrived == l.Out.Sent }},
		} {
			if s.shaping.Duplicate > 0 && engine == links.Queue {
				continue // it cannot: one packet is in the kernel, and one verdict on it
			}
			t.Run(string(engine)+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				c, _ := agenttest.Serve(t, Mechanism())
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
				if m := gauged(t, c, x, y, 200, pace); m.Out.Arrived != m.Out.Sent || !m.near(m.Out.OneWay.Low, 0) {
					t.Errorf("undone, but still: %+v", m.Out)
				}
			})
		}
	}
}

func TestShapingsCompose(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			c, _ := agenttest.Serve(t, Mechanism())
			x, y := cabledPair(t, c)
			shaped(t, c, "late", x, y, links.Shaping{Engine: engine, Delay: 200 * time.Millisecond})
			shaped(t, c, "lossy", x, y, links.Shaping{Engine: engine, Loss: 0.3})
			shaped(t, c, "later", x, y, links.Shaping{Engine: engine, Delay: 400 * time.Millisecond})
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
			m = gauged(t, c, x, y, 200, pace)
			if !m.near(m.Out.OneWay.Low, 400*time.Millisecond) || m.Out.Arrived != m.Out.Sent {
				t.Errorf("the second delay alone: %+v", m.Out)
			}
			unfiltered(t, c, "later")
			untouched(t, x, y)
			openBothWays(t, c, x, y)
		})
	}
}

// TestShapingsOfPorts shapes the datagrams from one port, and those to another; datagrams of both get both shapings.
func TestShapingsOfPorts(t *testing.T) {
	for _, engine := range engines(t) {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			c, _ := agenttest.Serve(t, Mechanism())
			x, y := cabledPair(t, c)
			at, from, to := x, links.Rule{Peer: y.address, Out: true, How: links.Shape, Port: 6379}, links.Rule{Peer: y.address, Out: true, How: links.Shape, PeerPort: 7000}
			if engine == links.Queue {
				at, from, to = y, links.Rule{Peer: x.address, How: links.Shape, PeerPort: 6379}, links.Rule{Peer: x.address, How: links.Shape, Port: 7000}
			}
			put := func(key string, r links.Rule, by time.Duration) {
				args := links.FilterArgs{Rules: []links.Rule{r}, Shaping: &links.Shaping{Engine: engine, Delay: by}}
				if err := c.Order(t.Context(), agent.Order{Do: links.DoFilter, Process: at.Process, Key: key, Args: args}, nil); err != nil {
					t.Fatal(err)
				}
			}
			put("from/x", from, 200*time.Millisecond)
			put("to/x", to, 400*time.Millisecond)
			for _, a := range []struct {
				port, theirs uint16
				late         time.Duration
			}{{0, 0, 0}, {6379, 0, 200 * time.Millisecond}, {0, 7000, 400 * time.Millisecond}, {6379, 7000, 600 * time.Millisecond}, {7000, 6379, 0}} {
				m := measuredWith(t, c, x, y, links.MeasureArgs{
					ProbeEnd: links.ProbeEnd{Address: x.address, Port: a.port}, Peers: []links.ProbeEnd{{Address: y.address, Port: a.theirs}}, Count: 200,
					Every: pace, Out: true, Patience: forArrivals,
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
		c, ended := agenttest.Serve(t, Mechanism())
		x, y := cabledPair(t, c)
		for _, key := range []string{"one/x", "two/x"} {
			shaped(t, c, key, x, y, links.Shaping{Engine: engine, Delay: 500 * time.Millisecond})
		}
		agenttest.Ended(t, c, ended)
		untouched(t, x, y)
		c, _ = agenttest.Serve(t, Mechanism())
		for _, e := range []*cabled{&x, &y} {
			var err error
			if e.Process, err = c.Own(t.Context(), e.PID, false); err != nil {
				t.Fatal(err)
			}
		}
		openBothWays(t, c, x, y)
	}
}

// streamed is what a link carried of one second's datagrams at twice a rate, and the total wait for them.
type streamed struct {
	links.MeasuredLink
	took time.Duration
}

const streamSize = 1000

// within reports whether no more went from x to y than a limit allows in the measured time, stalls included.
func (s streamed) within(limit uint64) bool {
	bits := func(bytes int) float64 { return float64(8 * bytes) }
	most := float64(limit)*s.took.Seconds() + bits(int(links.TBFBurst(limit/8)))
	return bits(s.Out.Arrived*(streamSize+wireHead)) <= 1.05*most // the kernel counts in ticks
}

// stream sends datagrams from x to y and back, twice as many as a rate lets pass.
func stream(t *testing.T, c *agent.Client, x, y cabled, bits float64) streamed {
	t.Helper()
	const size = streamSize
	every := time.Duration(float64((size+wireHead)*8) / (2 * bits) * float64(time.Second))
	var m links.Measured
	begin := time.Now()
	err := c.Order(t.Context(), agent.Order{Do: links.DoMeasure, Process: x.Process, With: []proc.Process{y.Process}, Args: links.MeasureArgs{
		ProbeEnd: links.ProbeEnd{Address: x.address}, Peers: []links.ProbeEnd{{Address: y.address}}, Count: int(time.Second / every), Every: every, Size: size,
		Out: true, In: true, Patience: 250 * time.Millisecond, // the token bucket holds up for 200 ms
	}}, &m)
	took := time.Since(begin)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("to %+v", m.Peers[0].Out)
	t.Logf("from %+v", m.Peers[0].In)
	return streamed{m.Peers[0], took}
}

func TestRate(t *testing.T) {
	t.Parallel()
	if e := tryEngines(); e[links.TBF] != "" {
		if os.Geteuid() != 0 {
			t.Skip(e[links.TBF])
		}
		t.Fatal(e[links.TBF])
	}
	const limit = 500_000
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	z := "10.99.0.9" // unused: another class besides
	shaped(t, c, "slow/x", x, y, links.Shaping{Engine: links.TBF, Rate: limit})
	shaped(t, c, "other/x", x, cabled{address: z}, links.Shaping{Engine: links.TBF, Rate: limit})
	const unlimited = 1.25 * limit // twice the limit was sent; stalls of 600 ms stretch that second so far
	if m := stream(t, c, x, y, limit); !m.within(limit) || m.In.Bits < unlimited {
		t.Errorf("limited to %d: %+v to in %v, %.0f from", limit, m.Out, m.took, m.In.Bits)
	}
	late := links.Shaping{Engine: engines(t)[0], Delay: 300 * time.Millisecond}
	shaped(t, c, "late/x", x, y, late)
	if d := gauged(t, c, x, y, 50, 5*time.Millisecond); !d.near(d.Out.OneWay.Low, 300*time.Millisecond) || d.Out.Arrived != d.Out.Sent {
		t.Errorf("slow and late: %+v", d.Out)
	}
	unfiltered(t, c, "late/x")
	if u := unfiltered(t, c, "other/x"); u.Others != 1 || len(u.Left) > 0 {
		t.Errorf("undone: %+v", u)
	}
	if m := stream(t, c, x, y, limit); !m.within(limit) {
		t.Errorf("another limit was undone, and now: %+v in %v", m.Out, m.took)
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
	if m := stream(t, c, x, y, limit); m.Out.Bits < unlimited {
		t.Errorf("the limit was undone, and now: %+v", m.Out)
	}
}

// TestTreeOfAnAgentThatDied finds traffic control of ours that belongs to no agent.
func TestTreeOfAnAgentThatDied(t *testing.T) {
	t.Parallel()
	if e := tryEngines(); e[links.TBF] != "" {
		t.Skip(e[links.TBF])
	}
	dead, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, dead)
	if _, err := newLinks().tree(x.space).addFault(x.space, &treeFault{rules: []links.Rule{{Peer: y.address, Out: true, How: links.Shape}}, shaping: links.Shaping{Engine: links.TBF, Rate: 1e6}}); err != nil {
		t.Fatal(err)
	}
	c, _ := agenttest.Serve(t, Mechanism())
	var err error
	if x.Process, err = c.Own(t.Context(), x.PID, false); err != nil {
		t.Fatal(err)
	}
	if supported() == nil {
		filtered(t, c, "other", x, links.Rule{Peer: "10.99.0.77", How: links.Drop})
		if u := unfiltered(t, c, "other"); len(u.Left) != 1 {
			t.Errorf("traffic control that nobody accounts for: %+v", u)
		}
	}
	if stands, err := ownRoot(x.space); err != nil || !stands {
		t.Fatalf("traffic control stands: %t, %v", stands, err)
	}
	shaped(t, c, "slow/x", x, y, links.Shaping{Engine: links.TBF, Rate: 1e6})
	if u := unfiltered(t, c, "slow/x"); len(u.Left) > 0 {
		t.Errorf("undone: %+v", u)
	}
}

func TestTreeRefuses(t *testing.T) {
	t.Parallel()
	if e := tryEngines(); e[links.TBF] != "" {
		t.Skip(e[links.TBF])
	}
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	slow := links.Shaping{Engine: links.TBF, Rate: 1e6}
	for i := range treeFaults {
		shaped(t, c, fmt.Sprintf("slow%d/x", i), x, y, slow)
	}
	out := links.Rule{Peer: y.address, Out: true, How: links.Shape}
	for what, a := range map[string]links.FilterArgs{
		"one fault too many":    {Rules: []links.Rule{out}, Shaping: &slow},
		"what is sent to it":    {Rules: []links.Rule{{Peer: y.address, How: links.Shape}}, Shaping: &slow},
		"no shaping":            {Rules: []links.Rule{out}},
		"a rule that holds too": {Rules: []links.Rule{out, {Peer: y.address, How: links.Hold}}, Shaping: &slow},
	} {
		if err := c.Order(t.Context(), agent.Order{Do: links.DoFilter, Process: x.Process, Key: "bad/x", Args: a}, nil); err == nil {
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
