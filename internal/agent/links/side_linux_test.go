//go:build integration

package links

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/wait"
)

func TestMain(m *testing.M) {
	agenttest.BeChild(Mechanism())
	if os.Getenv("LOCKQUAKE_TEST_NETEM") != "required" { // the guest of make test-netem is slow
		_ = flag.Set("test.parallel", "6") // unless told otherwise: they wait for links, not for a processor
	}
	os.Exit(m.Run())
}

// pair is two ends of a link that belong to two agents.
type pair struct {
	one, two *agent.Client
	x, y     cabled
	second   *exec.Cmd // the agent two
}

// apart starts two agents, each with one end of a link. The second has another clock.
func apart(t *testing.T) *pair {
	t.Helper()
	p := &pair{}
	p.one, _ = agenttest.Serve(t, Mechanism())
	p.two, p.second = agenttest.OtherClock(t, os.Args[0], "-test.run=^$")
	p.x, p.y = cabledApart(t, p.one, p.two)
	return p
}

// clients are the agents, in the order of their ends.
func (p *pair) clients() []*agent.Client { return []*agent.Client{p.one, p.two} }

// both gives an order to both agents at once.
func (p *pair) both(ctx context.Context, o agent.Order, answers ...any) error {
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i, of := range []proc.Process{p.x.Process, p.y.Process} {
		one, answer := o, any(nil)
		one.Key, one.Process = "side", of
		if args, ok := o.Args.(links.OpenArgs); ok {
			args.Own = []int{i}
			one.Args = args
		}
		if len(answers) > 0 {
			answer = answers[i]
		}
		all.Go(func() { errs[i] = p.clients()[i].Order(ctx, one, answer) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// open opens both ends.
func (p *pair) open(t *testing.T, plan links.Plan) []links.OpenEnd {
	t.Helper()
	var one, two []links.OpenEnd
	if err := p.both(t.Context(), agent.Order{Do: links.DoSideOpen, Args: links.OpenArgs{Plan: plan}}, &one, &two); err != nil {
		t.Fatal(err)
	}
	return append(one, two...)
}

func (p *pair) close(t *testing.T) {
	t.Helper()
	for _, c := range p.clients() {
		if err := c.Undo(t.Context(), "side", nil); err != nil && !errors.Is(err, agent.ErrEnded) {
			t.Error(err)
		}
	}
	p.silent(t)
}

// silent checks that no socket is left at either end.
func (p *pair) silent(t *testing.T) {
	t.Helper()
	for _, e := range []cabled{p.x, p.y} {
		var left []string // the kernel closes the sockets of a killed agent a moment later
		if !wait.Within(agenttest.Patience, func() bool { left = sockets(t, e); return len(left) == 0 }) {
			t.Errorf("sockets are left at %s: %q", e.address, left)
		}
	}
}

// sockets lists those in the namespace of a process.
func sockets(t *testing.T, e cabled) (out []string) {
	t.Helper()
	for _, of := range []string{"udp", "tcp"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", e.PID, of))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
			if fields := strings.Fields(line); of == "udp" || fields[3] == "0A" { // listens
				out = append(out, of+" "+fields[1])
			}
		}
	}
	return out
}

// seen carries out a plan.
func (p *pair) seen(t *testing.T, plan links.Plan) links.Sight {
	t.Helper()
	ends := p.open(t, plan)
	defer p.close(t)
	if err := p.both(t.Context(), agent.Order{Do: links.DoSideSend, Args: ends}); err != nil {
		t.Fatal(err)
	}
	var one, two links.Sight
	if err := p.both(t.Context(), agent.Order{Do: links.DoSideSeen}, &one, &two); err != nil {
		t.Fatal(err)
	}
	joined, err := plan.Join([]links.Sight{one, two}, []int{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	return joined
}

func (p *pair) measuring(n int) links.MeasureArgs {
	return links.MeasureArgs{
		ProbeEnd: links.ProbeEnd{Address: p.x.address}, Peers: []links.ProbeEnd{{Address: p.y.address}}, Count: n, Every: pace, Out: true, In: true, Echo: true,
		Patience: forArrivals,
	}
}

func (p *pair) measured(t *testing.T, args links.MeasureArgs) links.MeasuredLink {
	t.Helper()
	plan := args.Plan()
	var m links.Measured
	m.Take(plan, p.seen(t, plan))
	t.Logf("to   %+v", m.Peers[0].Out)
	t.Logf("from %+v", m.Peers[0].In)
	return m.Peers[0]
}

func (p *pair) probed(t *testing.T, args links.ProbeArgs) links.ProbeResult {
	t.Helper()
	args.ProbeEnd, args.Peers = links.ProbeEnd{Address: p.x.address}, []links.ProbeEnd{{Address: p.y.address}}
	plan := args.Plan()
	plan.Echo = true
	var r links.ProbeResult
	r.Take(plan, p.seen(t, plan))
	return r
}

func TestSidesOfTwoAgentsSeeWhatOneDoes(t *testing.T) {
	t.Parallel()
	p := apart(t)
	alone, _ := agenttest.Serve(t, Mechanism())
	x, y := p.x, p.y
	for _, e := range []*cabled{&x, &y} {
		var err error
		if e.Process, err = alone.Own(t.Context(), e.PID, false); err != nil {
			t.Fatal(err)
		}
	}
	args := p.measuring(200)
	args.Size = 500
	begin := time.Now()
	is := p.measured(t, args)
	slowest := float64((args.Count-1)*(args.Size+wireHead)*8) / time.Since(begin).Seconds() // bits a second
	by := measuredWith(t, alone, x, y, args)
	for way, f := range map[string][2]links.Flow{"to": {is.Out, by.Out}, "from": {is.In, by.In}} {
		two, one := f[0], f[1]
		if two.Sent != one.Sent || two.Arrived != two.Sent || two.Copies != 0 || two.Leapt != 0 || two.Damaged != 0 || one.Arrived != one.Sent || one.TwoClocks {
			t.Errorf("%s: %+v by two agents, %+v by one", way, two, one)
		}
		if !two.TwoClocks || two.Round.Low <= 0 || two.Round.Low > oneClock || two.Round.Max < two.Round.Low {
			t.Errorf("%s: round trips of %+v", way, two.Round)
		}
		if two.OneWay.Low != two.Round.Low/2 || two.OneWay.Mid < two.OneWay.Low || two.OneWay.Max > oneClock {
			t.Errorf("%s: one way takes %+v, round trips %+v", way, two.OneWay, two.Round)
		}
		if two.Bits < slowest { // at most is for TestRate: datagrams that were held up come all at once
			t.Errorf("%s: %.0f bits a second, want %.0f at least", way, two.Bits, slowest)
		}
	}
	for _, args := range []links.MeasureArgs{{Out: true}, {In: true}} { // without echoes
		args.ProbeEnd, args.Peers, args.Count, args.Every, args.Patience = p.measuring(0).ProbeEnd, p.measuring(0).Peers, 50, pace, forArrivals
		l := p.measured(t, args)
		if f := l.Out; args.Out && (f.Arrived != f.Sent || f.Round.Max != 0 || f.OneWay.Low != 0 || f.OneWay.Max > oneClock) {
			t.Errorf("to: %+v", f)
		}
		if f := l.In; args.In && (f.Arrived != f.Sent || f.Round.Max != 0 || f.OneWay.Low != 0 || f.OneWay.Max > oneClock) {
			t.Errorf("from: %+v", f)
		}
	}
}

func TestSidesSeeACutOfOneDirection(t *testing.T) {
	t.Parallel()
	p := apart(t)
	filtered(t, p.one, "cut", p.x, links.Rule{Peer: p.y.address, Out: true, How: links.Drop})
	args := p.measuring(50)
	args.Patience /= 2 // nothing will arrive
	l := p.measured(t, args)
	if l.Out.Arrived != 0 || l.Out.Sent != 50 || l.Out.Round.Max != 0 {
		t.Errorf("to, which is cut: %+v", l.Out)
	}
	if l.In.Arrived != 50 || l.In.Round.Max != 0 || l.In.OneWay.Max > oneClock { // no echo comes back
		t.Errorf("from: %+v", l.In)
	}
	s := p.probed(t, links.ProbeArgs{Patience: args.Patience}).Peers[0]
	if s.Out.Arrived || s.Out.Sent < links.ProbeLeast || !s.In.Arrived || s.In.After > oneClock {
		t.Errorf("a probe: %+v", s)
	}
	unfiltered(t, p.one, "cut")
	filtered(t, p.two, "refused", p.y, links.Rule{Peer: p.x.address, How: links.Reject})
	s = p.probed(t, links.ProbeArgs{Patience: args.Patience, DialOut: true}).Peers[0]
	if s.Out.Arrived || s.Out.Dial != links.Refused || !s.In.Arrived || s.In.Dial != "" {
		t.Errorf("a probe of what is refused: %+v", s)
	}
	unfiltered(t, p.two, "refused")
	const long = time.Minute
	begin := time.Now()
	r := p.probed(t, links.ProbeArgs{Patience: long, DialOut: true, DialIn: true, Control: p.x.address + ":9"})
	if took := time.Since(begin); took > long/2 { // it ends with the first arrivals
		t.Errorf("a probe of an open link took %v", took)
	}
	s = r.Peers[0]
	if !s.Out.Arrived || !s.In.Arrived || s.Out.Dial != links.Connected || s.In.Dial != links.Connected || max(s.Out.After, s.In.After) > oneClock {
		t.Errorf("a probe of an open link: %+v", s)
	}
	if !r.Self || r.Control != links.Refused {
		t.Errorf("a probe of an open link: %+v", r)
	}
	untouched(t, p.x, p.y)
}

func TestSidesSeeADelayInTheRoundTrip(t *testing.T) {
	t.Parallel()
	p := apart(t)
	e := engines(t)[0]
	shaped := p.one
	at, rule := p.x, links.Rule{Peer: p.y.address, Out: true, How: links.Shape}
	if e == links.Queue {
		shaped, at, rule = p.two, p.y, links.Rule{Peer: p.x.address, How: links.Shape}
	}
	args := links.FilterArgs{Rules: []links.Rule{rule}, Shaping: &links.Shaping{Engine: e, Delay: 300 * time.Millisecond}}
	if err := shaped.Order(t.Context(), agent.Order{Do: links.DoFilter, Process: at.Process, Key: "late", Args: args}, nil); err != nil {
		t.Fatal(err)
	}
	l := p.measured(t, p.measuring(400)) // of 400 ms, two stalls of 200 ms leave more than a twentieth to tell Round.Low
	for way, f := range map[string]links.Flow{"to": l.Out, "from": l.In} {
		if f.Arrived != f.Sent || f.Round.Low < 300*time.Millisecond || f.Round.Low > 300*time.Millisecond+unshaped || f.OneWay.Low != f.Round.Low/2 {
			t.Errorf("%s: %+v", way, f)
		}
	}
	if s := p.probed(t, links.ProbeArgs{Patience: forArrivals}).Peers[0]; !s.Out.Arrived || !s.In.Arrived || s.Out.After < 150*time.Millisecond || s.In.After < 150*time.Millisecond {
		t.Errorf("a probe: %+v", s)
	}
	unfiltered(t, shaped, "late")
}

func TestSidesOfADeadAgent(t *testing.T) {
	t.Parallel()
	p := apart(t)
	const long = time.Minute
	ends := p.open(t, p.measuring(int(long/pace)).Plan())
	send := func(ctx context.Context, c *agent.Client, of cabled) error {
		return c.Order(ctx, agent.Order{Do: links.DoSideSend, Key: "side", Process: of.Process, Args: ends}, nil)
	}
	begin := time.Now()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	sending := make(chan error, 1)
	go func() { sending <- send(ctx, p.one, p.x) }()
	time.AfterFunc(200*time.Millisecond, func() { _ = p.second.Process.Kill() }) // while it sends, or before
	if err := send(ctx, p.two, p.y); !errors.Is(err, agent.ErrEnded) {
		t.Errorf("an agent that dies says %v", err)
	}
	giveUp() // the other agent is not waited for
	<-sending
	p.close(t)
	if took := time.Since(begin); took > long/2 { // the undo ends what is being sent
		t.Errorf("the end took %v", took)
	}
	if keys, err := p.one.Standing(t.Context()); err != nil || len(keys) > 0 {
		t.Errorf("with the agent that lives stands %v, %v", keys, err)
	}
}

func TestSidesThatAreClosedAtAnyTime(t *testing.T) {
	t.Parallel()
	p := apart(t)
	args := p.measuring(100)
	args.Patience = time.Minute
	filtered(t, p.one, "cut", p.x, links.Rule{Peer: p.y.address, Out: true, How: links.Drop})
	for _, do := range []string{links.DoSideSend, links.DoSideSeen} {
		args.Every = map[string]time.Duration{links.DoSideSend: 100 * time.Millisecond, links.DoSideSeen: time.Microsecond}[do]
		ends := p.open(t, args.Plan())
		if do == links.DoSideSeen {
			if err := p.both(t.Context(), agent.Order{Do: links.DoSideSend, Args: ends}); err != nil {
				t.Fatal(err)
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- p.both(t.Context(), agent.Order{Do: do, Args: ends}) }()
		time.Sleep(100 * time.Millisecond) // it is under way by then, or comes too late
		p.close(t)
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s whose ends were closed says nothing", do)
			}
		case <-time.After(agenttest.Patience):
			t.Fatalf("%s goes on after its ends were closed", do)
		}
		if err := p.both(t.Context(), agent.Order{Do: do, Args: ends}); err == nil {
			t.Errorf("%s of ends that are closed succeeds", do)
		}
	}
	ends := p.open(t, args.Plan())
	if len(sockets(t, p.x)) == 0 || len(ends) != 2 {
		t.Fatal("nothing is open")
	}
	for _, c := range p.clients() { // the run ends without any undo
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	p.silent(t)
	untouched(t, p.x, p.y)
}

func TestSidesThatCannotBeOpened(t *testing.T) {
	t.Parallel()
	p := apart(t)
	good := links.OpenArgs{Plan: p.measuring(5).Plan(), Own: []int{0}}
	order := agent.Order{Do: links.DoSideOpen, Key: "side", Process: p.x.Process}
	for _, x := range []struct {
		what   string
		change func(a *links.OpenArgs)
	}{
		{"another node's address", func(a *links.OpenArgs) { a.Own = []int{1} }},
		{"two ends for one process", func(a *links.OpenArgs) { a.Own = []int{0, 1} }},
		{"an end that is not there", func(a *links.OpenArgs) { a.Own = []int{2} }},
		{"a flow from nowhere", func(a *links.OpenArgs) { a.Plan.Flows = []links.PlannedFlow{{From: 3}} }},
		{"too many datagrams", func(a *links.OpenArgs) { a.Plan.Count = gaugeMost }},
		{"none", func(a *links.OpenArgs) { a.Plan.Count = 0 }},
	} {
		args := good
		x.change(&args)
		order.Args = args
		if err := p.one.Order(t.Context(), order, nil); err == nil {
			t.Errorf("%s: opened", x.what)
		}
		p.silent(t)
		_ = p.one.Undo(t.Context(), "side", nil) // it may stand, or not
	}
	// One of two ends opens, the other does not.
	args := links.OpenArgs{Plan: p.measuring(5).Plan(), Own: []int{0, 1}}
	if err := p.one.Order(t.Context(), agent.Order{Do: links.DoSideOpen, Key: "side", Process: p.x.Process, With: []proc.Process{p.x.Process}, Args: args}, nil); err == nil {
		t.Error("an end was opened where its address is not")
	}
	p.silent(t)
	if err := p.one.Undo(t.Context(), "side", nil); err != nil {
		t.Error(err)
	}
	order.Args = good
	for i, want := range []bool{true, false} {
		if err := p.one.Order(t.Context(), order, nil); (err == nil) != want {
			t.Errorf("time %d under one key: %v", i+1, err)
		}
	}
	if n := len(sockets(t, p.x)); n != 1 {
		t.Errorf("%d sockets are open", n)
	}
	if err := p.one.Undo(t.Context(), "side", nil); err != nil {
		t.Error(err)
	}
	p.silent(t)
}
