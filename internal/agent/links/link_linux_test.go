//go:build integration

package links

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/florianl/go-nfqueue/v2"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/wait"
)

// cabled is a process in a network namespace of its own with a link to another.
type cabled struct {
	proc.Process
	cmd     *exec.Cmd
	space   *namespace
	address string
}

// cabledPair starts two processes in network namespaces of their own, joined by one link. Everything goes with them.
func cabledPair(t *testing.T, c *agent.Client) (x, y cabled) {
	t.Helper()
	return cabledApart(t, c, c)
}

// cabledApart starts a pair, each with an agent of its own.
func cabledApart(t *testing.T, one, two *agent.Client) (x, y cabled) {
	t.Helper()
	x, y = lonely(t, one, "10.99.0.1"), lonely(t, two, "10.99.0.2")
	h, err := netlink.NewHandleAt(netns.NsHandle(x.space.fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(y.space.fd())}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []cabled{x, y} {
		e.plug(t)
	}
	for _, e := range []cabled{x, y} {
		e.awaitCarrier(t)
	}
	return x, y
}

func lonely(t *testing.T, c *agent.Client, address string) cabled {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		t.Skipf("network namespaces need root: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := c.Own(t.Context(), cmd.Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	space, err := openNamespace(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = space.close() })
	return cabled{Process: p, cmd: cmd, space: space, address: address}
}

// plug switches the links of a namespace on.
func (e cabled) plug(t *testing.T) {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(e.space.fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	addr, err := netlink.ParseAddr(e.address + "/24")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"eth0", "lo"} {
		l, err := h.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "eth0" {
			if err := h.AddrAdd(l, addr); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitCarrier waits until the link is up at both ends: earlier packets are lost, and the neighbour is resolved again
// only after a second.
func (e cabled) awaitCarrier(t *testing.T) {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(e.space.fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	wait.Until(t, agenttest.Patience, "the link of "+e.address+" has a carrier", func() bool {
		l, err := h.LinkByName("eth0")
		return err == nil && l.Attrs().OperState == netlink.OperUp
	})
}

// filtered installs rules on a process.
func filtered(t *testing.T, c *agent.Client, key string, at cabled, rules ...links.Rule) {
	t.Helper()
	if err := c.Order(t.Context(), agent.Order{Do: links.DoFilter, Process: at.Process, Key: key, Args: links.FilterArgs{Rules: rules}}, nil); err != nil {
		t.Fatal(err)
	}
}

func unfiltered(t *testing.T, c *agent.Client, key string) links.Filtered {
	t.Helper()
	var f links.Filtered
	if err := c.Undo(t.Context(), key, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func met(t *testing.T, c *agent.Client, key string, at cabled) links.Filtered {
	t.Helper()
	var f links.Filtered
	if err := c.Order(t.Context(), agent.Order{Do: links.DoFiltered, Process: at.Process, Args: key}, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// probed asks the agent for the link from x to y.
func probed(t *testing.T, c *agent.Client, x, y cabled, a links.ProbeArgs) links.Seen {
	return probedAt(t, c, x, y, 0, a)
}

// probedAt does so with a port of y's own.
func probedAt(t *testing.T, c *agent.Client, x, y cabled, theirs uint16, a links.ProbeArgs) links.Seen {
	t.Helper()
	a.Address = x.address
	a.Peers = []links.ProbeEnd{{Address: y.address, Port: theirs}}
	if a.Patience == 0 {
		a.Patience = 100 * time.Millisecond // for what does not pass: a stall can only hide an arrival
	}
	var r links.ProbeResult
	if err := c.Order(t.Context(), agent.Order{Do: links.DoProbe, Process: x.Process, With: []proc.Process{y.Process}, Args: a}, &r); err != nil {
		t.Fatal(err)
	}
	if !r.Self || len(r.Peers) != 1 {
		t.Fatalf("the probe answers %+v", r)
	}
	return r.Peers[0]
}

// untouched checks that neither namespace has a table of ours.
func untouched(t *testing.T, ends ...cabled) {
	t.Helper()
	for _, e := range ends {
		if names, err := ownTables(e.space); err != nil || len(names) > 0 {
			t.Errorf("%s: tables %v are left, %v", e.address, names, err)
		}
	}
}

// openBothWays checks that everything passes.
func openBothWays(t *testing.T, c *agent.Client, x, y cabled) {
	t.Helper()
	s := probed(t, c, x, y, links.ProbeArgs{DialOut: true, DialIn: true, Patience: forArrivals})
	if !s.Out.Arrived || !s.In.Arrived || s.Out.Dial != links.Connected || s.In.Dial != links.Connected {
		t.Fatalf("the link should be open: %+v", s)
	}
}

func TestFilters(t *testing.T) {
	out, in := links.Rule{Out: true}, links.Rule{}
	for _, f := range []struct {
		name            string
		how             string
		rules           []links.Rule
		outOpen, inOpen bool
		outDial, inDial string
	}{
		{"both ways", links.Drop, []links.Rule{out, in}, false, false, links.Silent, links.Silent},
		{"to the peer", links.Drop, []links.Rule{out}, false, true, "", ""},
		{"from the peer", links.Drop, []links.Rule{in}, true, false, "", ""},
		{"both ways refused", links.Reject, []links.Rule{out, in}, false, false, links.Refused, ""},
		{"to the peer refused", links.Reject, []links.Rule{out}, false, true, links.Refused, ""},
		{"from the peer refused", links.Reject, []links.Rule{in}, true, false, "", links.Refused},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			c, _ := agenttest.Serve(t, Mechanism())
			x, y := cabledPair(t, c)
			openBothWays(t, c, x, y)
			for i := range f.rules {
				f.rules[i].Peer, f.rules[i].How = y.address, f.how
			}
			filtered(t, c, f.name, x, f.rules...)
			a := links.ProbeArgs{DialOut: f.outDial != "", DialIn: f.inDial != ""}
			if f.outOpen || f.inOpen {
				a.Patience = forArrivals
			}
			if s := probed(t, c, x, y, a); s.Out.Arrived != f.outOpen || s.In.Arrived != f.inOpen || s.Out.Dial != f.outDial || s.In.Dial != f.inDial {
				t.Errorf("%+v", s)
			}
			if n := met(t, c, f.name, x); n.Packets == 0 {
				t.Error("nothing was counted")
			}
			if u := unfiltered(t, c, f.name); u.Packets == 0 || len(u.Left) > 0 || u.Others > 0 {
				t.Errorf("undone with %+v", u)
			}
			untouched(t, x, y)
			openBothWays(t, c, x, y)
		})
	}
}

func TestFiltersOfPorts(t *testing.T) {
	t.Parallel()
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	filtered(t, c, "from port 6379", x, links.Rule{Peer: y.address, Out: true, Port: 6379, How: links.Drop})
	filtered(t, c, "from their port 7000", x, links.Rule{Peer: y.address, PeerPort: 7000, How: links.Drop})
	for _, a := range []struct {
		port, theirs uint16
		out, in      bool
	}{
		{0, 0, true, true}, {6379, 0, false, true}, {6380, 0, true, true}, {0, 7000, true, false}, {0, 6379, true, true}, {6379, 7000, false, false},
	} {
		probe := links.ProbeArgs{ProbeEnd: links.ProbeEnd{Port: a.port}, DialOut: a.port+a.theirs == 0}
		if a.out || a.in {
			probe.Patience = forArrivals
		}
		if s := probedAt(t, c, x, y, a.theirs, probe); s.Out.Arrived != a.out || s.In.Arrived != a.in {
			t.Errorf("port %d, theirs %d: %+v", a.port, a.theirs, s)
		}
	}
	if u := unfiltered(t, c, "from port 6379"); u.Others != 1 || len(u.Left) > 0 {
		t.Errorf("the undo of one of two: %+v", u)
	}
	if s := probedAt(t, c, x, y, 7000, links.ProbeArgs{ProbeEnd: links.ProbeEnd{Port: 6379}, Patience: forArrivals}); !s.Out.Arrived || s.In.Arrived {
		t.Errorf("one of two overlapping filters was undone, and now: %+v", s)
	}
	if u := unfiltered(t, c, "from their port 7000"); u.Others != 0 {
		t.Errorf("the undo of the other: %+v", u)
	}
	openBothWays(t, c, x, y)
}

// talk opens a connection from x to a listener in y.
func talk(t *testing.T, x, y cabled) (from, to net.Conn) {
	t.Helper()
	var l net.Listener
	if err := y.space.do(func() (err error) { l, err = net.Listen("tcp4", y.address+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := x.space.do(func() (err error) { from, err = net.Dial("tcp4", l.Addr().String()); return err }); err != nil {
		t.Fatal(err)
	}
	to, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = from.Close(); _ = to.Close() })
	return from, to
}

func TestHeldPacketsOutliveTheirSenderAndArriveInOrder(t *testing.T) {
	t.Parallel()
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	from, to := talk(t, x, y)
	filtered(t, c, "late", y, links.Rule{Peer: x.address, How: links.Hold})
	var said string
	for i := range 20 {
		word := fmt.Sprintf("word %d, ", i)
		said += word
		if _, err := from.Write([]byte(word)); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, agenttest.Patience, "packets are held", func() bool { return met(t, c, "late", y).Held > 0 })
	b := make([]byte, 1024)
	_ = to.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := to.Read(b); n > 0 || err == nil {
		t.Errorf("%q came through, %v", b[:n], err)
	}
	_ = from.Close()
	_ = x.cmd.Process.Kill()
	_ = x.cmd.Wait()
	f := met(t, c, "late", y)
	if f.Held == 0 || f.Packets < uint64(f.Held) {
		t.Fatalf("held: %+v", f)
	}
	if u := unfiltered(t, c, "late"); u.Held < f.Held || len(u.Left) > 0 {
		t.Errorf("%d were held, and the undo says %+v", f.Held, u)
	}
	_ = to.SetReadDeadline(time.Now().Add(agenttest.Patience))
	if n, err := io.ReadAtLeast(to, b, len(said)); string(b[:n]) != said {
		t.Errorf("%q arrived, %v; sent was %q", b[:n], err, said)
	}
	untouched(t, y)
}

// TestPacketsThatAreNotReadYetAreLetGo: the reader of a queue stalls behind its first packet. The packets in the kernel
// are passed in order, and none is lost when the queue is closed.
func TestPacketsThatAreNotReadYetAreLetGo(t *testing.T) {
	t.Parallel()
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	var from, to net.Conn
	if err := y.space.do(func() (err error) {
		l, err := net.ListenPacket("udp4", y.address+":7000")
		to, _ = l.(net.Conn)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if err := x.space.do(func() (err error) { from, err = net.Dial("udp4", y.address+":7000"); return err }); err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	stalled := make(chan struct{})
	q, err := openQueue(y.space, queueOptions{arrived: func(*queue, nfqueue.Attribute) { <-stalled }})
	if err != nil {
		t.Fatal(err)
	}
	rules := tableOf(y.space, "unread")
	if err := rules.install([]links.Rule{{Peer: x.address, How: links.Hold}}, toQueue(q.number)); err != nil {
		t.Fatal(err)
	}
	const sent = 20
	for i := range sent {
		if _, err := from.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, agenttest.Patience, "packets wait", func() bool { n, _ := q.waiting(); return n >= sent })
	if err := q.passAll(1); err != nil {
		t.Error(err)
	}
	if err := rules.remove(); err != nil {
		t.Error(err)
	}
	close(stalled)
	if err := q.close(); err != nil {
		t.Error(err)
	}
	_ = to.SetReadDeadline(time.Now().Add(agenttest.Patience))
	b := make([]byte, 8)
	for i := range sent {
		if n, err := to.Read(b); err != nil || n != 1 || b[0] != byte(i) {
			t.Fatalf("datagram %d of %d: %v, %v", i, sent, b[:n], err)
		}
	}
}

// TestUnreadQueueHoldsNothingBack closes the queue behind the rule, as the agent's death does.
func TestUnreadQueueHoldsNothingBack(t *testing.T) {
	t.Parallel()
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	h, err := newHolder(y.space)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newHolder(y.space)
	if err != nil || second.queue.number == h.queue.number {
		t.Fatalf("a second queue in one namespace: %v", err)
	}
	defer func() { _ = second.close() }()
	left := tableOf(y.space, "left")
	if err := left.install([]links.Rule{{Peer: x.address, How: links.Hold}}, toQueue(h.queue.number)); err != nil {
		t.Fatal(err)
	}
	if s := probed(t, c, x, y, links.ProbeArgs{Patience: forArrivals}); s.Out.Arrived || !s.In.Arrived {
		t.Errorf("held: %+v", s)
	}
	if n, err := h.queue.waiting(); err != nil || n == 0 {
		t.Errorf("%d packets wait, %v", n, err)
	}
	if err := h.queue.q.Con.Close(); err != nil {
		t.Fatal(err)
	}
	openBothWays(t, c, x, y)
	filtered(t, c, "other", y, links.Rule{Peer: "10.99.0.77", How: links.Drop})
	if u := unfiltered(t, c, "other"); len(u.Left) != 1 || u.Left[0] != "lockquake_left" {
		t.Errorf("a table that nobody accounts for: %+v", u)
	}
	if err := left.remove(); err != nil {
		t.Error(err)
	}
	if err := left.remove(); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}

func TestFiltersGoWithTheControlStream(t *testing.T) {
	c, ended := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	filtered(t, c, "one", x, links.Rule{Peer: y.address, Out: true, How: links.Drop}, links.Rule{Peer: y.address, How: links.Hold})
	filtered(t, c, "two", y, links.Rule{Peer: x.address, How: links.Reject})
	many := []cabled{x, y}
	for i := range 30 {
		e := lonely(t, c, fmt.Sprintf("10.99.1.%d", i+1))
		filtered(t, c, fmt.Sprintf("many/%d", i), e, links.Rule{Peer: x.address, How: links.Drop})
		many = append(many, e)
	}
	agenttest.Ended(t, c, ended)
	untouched(t, many...)
}

func TestFilterFollowsItsProcess(t *testing.T) {
	t.Parallel()
	c, _ := agenttest.Serve(t, Mechanism())
	x, y := cabledPair(t, c)
	cut := []links.Rule{{Peer: y.address, Out: true, How: links.Drop}, {Peer: y.address, How: links.Drop}}
	filtered(t, c, "cut", x, cut...)
	probed(t, c, x, y, links.ProbeArgs{})
	before := met(t, c, "cut", x).Packets

	// Another process in the same namespace, as on the local provider.
	heir := exec.Command("sleep", "60")
	if err := x.space.do(heir.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = heir.Process.Kill(); _ = heir.Wait() })
	second := x
	var err error
	if second.Process, err = c.Own(t.Context(), heir.Process.Pid, false); err != nil {
		t.Fatal(err)
	}
	filtered(t, c, "cut", second, cut...)
	if after := met(t, c, "cut", second).Packets; after < before || before == 0 {
		t.Errorf("%d packets before, %d after: the rules were made anew", before, after)
	}

	// Another in a namespace of its own, as on docker.
	third := lonely(t, c, "10.99.0.3")
	_ = x.cmd.Process.Kill()
	_ = x.cmd.Wait()
	_ = heir.Process.Kill()
	_ = heir.Wait()
	filtered(t, c, "cut", third, cut...)
	if names, err := ownTables(third.space); err != nil || len(names) != 1 {
		t.Errorf("the new namespace has the tables %v, %v", names, err)
	}
	untouched(t, x)
	if after := met(t, c, "cut", third).Packets; after < before {
		t.Errorf("%d packets were met before, %d with the new process", before, after)
	}
	if u := unfiltered(t, c, "cut"); u.Packets < before || len(u.Left) > 0 {
		t.Errorf("undone: %+v", u)
	}
	untouched(t, third)
}

func TestFilterRefusesASharedNamespace(t *testing.T) {
	c, _ := agenttest.Serve(t, Mechanism())
	p, err := c.Own(t.Context(), agenttest.Sleeper(t).Process.Pid, false)
	if err != nil {
		t.Fatal(err)
	}
	err = c.Order(t.Context(), agent.Order{Do: links.DoFilter, Process: p, Key: "k", Args: links.FilterArgs{Rules: []links.Rule{{Peer: "10.0.0.1", How: links.Drop}}}}, nil)
	if err == nil {
		t.Error("rules were put into the machine's own network namespace")
	}
	if err := c.Undo(t.Context(), "k", nil); err != nil {
		t.Errorf("the undo of what was refused: %v", err)
	}
	for _, r := range []links.Rule{{Peer: "x", How: links.Drop}, {Peer: "::1", How: links.Drop}, {Peer: "10.0.0.1", How: "bounce"}} {
		if _, err := ruleExprs(r, nil); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
}
