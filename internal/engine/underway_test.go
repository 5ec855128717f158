package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/results"
)

// installed returns the receipt of a fault that bit.
func installed() (history.Receipt, error) {
	return history.Receipt{Status: history.Installed, Evidence: "seen", Time: clock.Now()}, nil
}

// TestScopeOfAFault: the servers, the number of other active faults, and whether its target was stopped.
func TestScopeOfAFault(t *testing.T) {
	t.Parallel()
	var others, still atomic.Int64
	h := &holding{}
	first := &fakeFault{inject: func(s chaos.Scope) (history.Receipt, error) {
		if !slices.Equal(s.Servers, []string{"server-1", "server-2"}) || s.Run.Stopped() || s.Run.Others() != 0 {
			t.Errorf("servers %v, stopped %t, %d others", s.Servers, s.Run.Stopped(), s.Run.Others())
		}
		return installed()
	}}
	second := &fakeFault{inject: func(s chaos.Scope) (history.Receipt, error) {
		others.Store(int64(s.Run.Others()))
		if s.Run.Stopped() {
			still.Add(1)
		}
		if err := s.Run.Continue(); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.resumed != 1 {
			t.Errorf("its target was continued %d times", h.resumed)
		}
		return installed()
	}}
	s := &testbed{t: t, servers: 2, faults: map[string]*fakeFault{"first": first, "second": second}, scripts: map[string]script{"client-1": h.script()}}
	text := scheduled("{use: first, on: server-1, at: 10ms}", "{use: second, on: holder, at: 60ms}")
	s.run(t.Context(), strings.Replace(text, "for: 400ms", "for: 1500ms", 1))
	if others.Load() != 1 || still.Load() != 1 || h.resumed != 1 {
		t.Errorf("%d others, stopped %d times, continued %d times", others.Load(), still.Load(), h.resumed)
	}
}

// TestAFaultAsksForClocks that the service does not report: a client's over its control stream; a missing node has
// none.
func TestAFaultAsksForClocks(t *testing.T) {
	t.Parallel()
	f := &fakeFault{inject: func(s chaos.Scope) (history.Receipt, error) {
		ctx := context.Background()
		before := clock.Now() // a fake node's wall clock shows the same as its monotonic one
		text, err := s.Service.Ask(ctx, "client-1", chaos.FactClock)
		if wall, perr := time.Parse(time.RFC3339Nano, text); err != nil || perr != nil || wall.UnixNano() < before || wall.UnixNano() > clock.Now() {
			t.Errorf("the clock of client-1 is %q (%v, %v)", text, err, perr)
		}
		if mono, err := s.Service.Ask(ctx, "client-1", chaos.FactMonotonic); err != nil || mono == "" {
			t.Errorf("the monotonic clock of client-1 is %q (%v)", mono, err)
		}
		if _, err := s.Service.Ask(ctx, "nobody", chaos.FactMonotonic); err == nil || !strings.Contains(err.Error(), `there is no node "nobody"`) {
			t.Errorf("nobody's clock: %v", err)
		}
		if got, err := s.Service.Ask(ctx, "server-1", chaos.FactServes); err != nil || got != "true" {
			t.Errorf("serves: %q, %v", got, err)
		}
		facts := s.Service.Facts()
		if facts[chaos.FactClock] == "" || facts[chaos.FactMonotonic] == "" || facts[chaos.FactServes] != "as the test says" {
			t.Errorf("facts %q", facts)
		}
		return installed()
	}}
	s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}}
	s.wantVerdict(s.run(t.Context(), scheduled(entry)), results.Pass)
}

// ofBothClocks is a service that reports both clocks of a server, or neither.
type ofBothClocks struct {
	fakeService
	fails error
}

func (ofBothClocks) Facts() map[string]string {
	return map[string]string{chaos.FactClock: "its own", chaos.FactMonotonic: "its own"}
}

func (v ofBothClocks) Ask(context.Context, string, string) (string, error) {
	return "as it says", v.fails
}

// TestAServerIsAskedForItsClocksFirst: if it does not report its monotonic clock, as a ZooKeeper in an election, one
// of its threads reads it. A wall clock is not read in this way.
func TestAServerIsAskedForItsClocksFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fails      error
		wall, mono string // how the errors begin
	}{{nil, "", ""}, {errTest, errTest.Error(), `there is no node "server-1"`}} {
		asked := control.Clocks{Nodes: &deployment.Nodes{Service: ofBothClocks{fails: c.fails}, Cluster: &cluster.Cluster{}}, Processes: &control.Processes{}}
		for fact, want := range map[string]string{chaos.FactClock: c.wall, chaos.FactMonotonic: c.mono} {
			got, err := asked.Ask(t.Context(), "server-1", fact)
			if want == "" && (err != nil || got != "as it says") || want != "" && (err == nil || err.Error() != want) {
				t.Errorf("%s, where the service says %v: %q, %v; want the error %q", fact, c.fails, got, err, want)
			}
		}
	}
}

// TestPacketsAreAwaited for a fault that counts them.
func TestPacketsAreAwaited(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		want         results.Verdict
		packets      func(asked int) (uint64, error) // nil: the fault has no counter
	}{
		{"the third look shows one", "", results.Pass, func(asked int) (uint64, error) { return uint64(max(asked-2, 0)), nil }},
		{"a look that fails is taken again", "", results.Pass, func(asked int) (uint64, error) {
			if asked == 1 {
				return 0, errTest
			}
			return 1, nil
		}},
		{"none comes", "line 10: await bitten: not within 50ms; it has matched no packet", results.Unknown, func(int) (uint64, error) { return 0, nil }},
		{"they cannot be counted", "its packets cannot be counted: a machine that says no", results.Unknown, func(int) (uint64, error) { return 0, errTest }},
		{"it hands over nothing", "line 10: await bitten: trouble on client-1 counts no packets", results.Unknown, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := &fakeFault{kind: chaos.Kind{Counts: true}, inject: func(s chaos.Scope) (history.Receipt, error) {
				if asked := 0; c.packets != nil {
					s.Run.Counts(chaos.Counted{Packets: func(context.Context) (uint64, error) { asked++; return c.packets(asked) }})
				}
				return installed()
			}}
			within := "50ms"
			if c.want == results.Pass {
				within = "5s"
			}
			s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}}
			got := s.run(t.Context(), directed("{do: acquire, user: A}", "{inject: trouble, on: A, as: it}", "{await: bitten, of: it, within: "+within+"}"))
			s.wantVerdict(got, c.want, c.reason)
		})
	}
}

// ledBy answers for servers, one of which leads.
func ledBy(leader *atomic.Value) func(node, fact string) (string, error) {
	return func(node, fact string) (string, error) {
		switch {
		case fact != chaos.FactRole:
			return "true", nil
		case leader.Load() == node:
			return "leader", nil
		}
		return "follower", nil
	}
}

// TestLeaderAfterAFaultAtTheLeader is asked until the old leader has noticed, and is in the receipt of the heal.
func TestLeaderAfterAFaultAtTheLeader(t *testing.T) {
	t.Parallel()
	var leader atomic.Value
	leader.Store("server-1")
	f := &fakeFault{inject: func(chaos.Scope) (history.Receipt, error) { leader.Store("server-2"); return installed() }}
	s := &testbed{t: t, servers: 2, faults: map[string]*fakeFault{"trouble": f}, ask: ledBy(&leader)}
	got := s.run(t.Context(), scheduled("{use: trouble, on: leader, at: 10ms, for: 50ms}"))
	s.wantVerdict(got, results.Pass)
	x := got.faults[0]
	if x.Target != "server-1" || x.Lead == nil || x.Lead.Old != "server-1" || x.Lead.New != "server-2" || x.Lead.Noticed == 0 {
		t.Errorf("target %s, lead %+v", x.Target, x.Lead)
	}
	if want := "seen undone; the lead: server-2 led after "; !strings.HasPrefix(x.Healed.Evidence, want) {
		t.Errorf("the heal tells %q, want %q", x.Healed.Evidence, want)
	}
}

// TestAnotherLeadIsAwaited after a fault that hits the leader beside a client.
func TestAnotherLeadIsAwaited(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		moves  bool
		want   results.Verdict
		reason string
	}{
		{true, results.Pass, ""},
		{false, results.Unknown, "line 10: await led: not within 300ms; no other node was seen to lead"},
	} {
		var leader atomic.Value
		leader.Store("server-1")
		f := &fakeFault{inject: func(chaos.Scope) (history.Receipt, error) {
			if c.moves {
				time.AfterFunc(50*time.Millisecond, func() { leader.Store("server-2") })
			}
			return installed()
		}}
		s := &testbed{t: t, servers: 2, faults: map[string]*fakeFault{"trouble": f}, ask: ledBy(&leader)}
		got := s.run(t.Context(), directed("{do: acquire, user: A}", "{inject: trouble, on: [leader, A], as: it}", "{await: led, of: it, within: 300ms}"))
		s.wantVerdict(got, c.want, c.reason)
		if x := got.faults[0]; x.Lead == nil || x.Lead.Old != "server-1" || (x.Lead.New == "server-2") != c.moves {
			t.Errorf("lead moves: %v; %+v", c.moves, x.Lead)
		}
	}
}

// TestObservationsAreRecorded: once each, or repeatedly until the steps are over.
func TestObservationsAreRecorded(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, servers: 2}
	got := s.run(t.Context(), directed(
		"{do: acquire, user: A}", "{observe: serves, on: 'server-1, server-2'}", "{observe: role, on: server-1, every: 5ms}", "{await: elapsed, for: 300ms}",
	))
	s.wantVerdict(got, results.Pass)
	seen, err := results.ReadObserved(got.dir)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, o := range seen {
		if o.By == history.ByObserve {
			counts[o.Fact+" "+o.Node] += o.Count
		}
		if o.Node == history.Service {
			t.Errorf("asked of a service that does not say as a whole what it has: %+v", o)
		}
	}
	if counts["serves server-1"] != 1 || counts["serves server-2"] != 1 || counts["role server-1"] < 3 {
		t.Errorf("observed %v", counts)
	}

	s = &testbed{t: t, ask: func(_, fact string) (string, error) {
		if fact == chaos.FactRole {
			return "", errTest
		}
		return "true", nil
	}}
	got = s.run(t.Context(), directed("{do: acquire, user: A}", "{observe: role, on: server-1, within: 30ms}"))
	s.wantVerdict(got, results.Unknown, "line 9: observe role on server-1: server-1: not within 30ms; the last answer was an error: a machine that says no")
}

// TestFaultsAreTriedOut in parallel and one after another, each healed as soon as it is injected.
func TestFaultsAreTriedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		good, bad := &fakeFault{}, &fakeFault{inject: injects(history.NotInstalled, errTest)}
		s := &testbed{t: t, servers: 2, faults: map[string]*fakeFault{"good": good, "bad": bad}}
		text := scheduled("{use: good, on: server-1, at: 1ms}", "{use: bad, on: server-2, at: 1ms}", "{use: good, on: client-1, at: 1ms}")
		got := map[int]history.Fault{}
		err := TryOut(t.Context(), s.options(text), [][][]int{{{0}, {1}}, {{2}}}, func(x Tried) {
			if x.Entry == 2 && len(got) != 2 {
				t.Errorf("the second stage began after %d of 2 entries", len(got))
			}
			got[x.Entry] = x.Fault
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []history.ReceiptStatus{history.Installed, history.NotInstalled, history.Installed} {
			if x := got[i]; x.Receipt.Status != want || x.Healed == nil {
				t.Errorf("entry %d: %+v", i, x)
			}
		}
		if good.healed() != 2 || bad.healed() != 1 {
			t.Errorf("%d and %d heals", good.healed(), bad.healed())
		}

		s = &testbed{t: t, ready: func() error { return errTest }, faults: map[string]*fakeFault{"good": good}}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err = TryOut(ctx, s.options(scheduled("{use: good, on: client-1, at: 1ms}")), [][][]int{{{0}}}, func(Tried) { t.Error("it was tried") })
		if missing := (plan.MissingError{}); !errors.As(err, &missing) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestServersWithoutAResetAreNotKept: if the service has no reset, each run starts its own, and the second says why.
func TestServersWithoutAResetAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &testbed{t: t}
		kept := &KeptServers{}
		for i, want := range []string{"", "there is no reset for fake"} {
			o := s.options(scheduled())
			o.Kept, o.Started = kept, time.Now().Add(time.Duration(i)*time.Second)
			dir, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if got := s.judge(finishedRun{dir: dir}); got.env.Kept || got.env.Fresh != want {
				t.Errorf("run %d: kept %t, fresh because of %q; want %q", i+1, got.env.Kept, got.env.Fresh, want)
			}
		}
		if len(kept.Nodes()) != 0 || kept.Close(t.Context()) != nil {
			t.Error("servers were kept")
		}
	})
}

// TestTheOtherEndsOfLinksAreDrawn for each injection separately, in a schedule by its time. So the injections that
// remain in a trimmed schedule meet the same nodes.
func TestTheOtherEndsOfLinksAreDrawn(t *testing.T) {
	t.Parallel()
	cut := map[string]*fakeFault{"cut": {far: chaos.Names{"one"}}}
	peers := func(text string) []string {
		var out []string
		for _, f := range (&testbed{t: t, servers: 9, faults: cut}).run(t.Context(), text).faults {
			out = append(out, strings.Join(f.Peers, ","))
		}
		return out
	}
	var entries []string
	for _, at := range []string{"10ms", "20ms", "30ms", "40ms", "50ms"} {
		entries = append(entries, "{use: cut, on: client-1, at: "+at+", for: 5ms}")
	}
	all, trimmed := peers(scheduled(entries...)), peers(scheduled(entries[1:]...))
	if len(all) != 5 || !slices.Equal(all[1:], trimmed) {
		t.Errorf("drawn are %q, and %q of the schedule without its first entry", all, trimmed)
	}
	const inject = "{inject: cut, on: A}"
	steps := peers(directed("{do: acquire, user: A}", inject, inject, inject, inject, inject))
	if len(steps) != 5 || len(slices.Compact(slices.Sorted(slices.Values(steps)))) < 2 {
		t.Errorf("five steps drew %q", steps)
	}
}

// TestAnOtherEndThatIsNotThere: nothing is done to the links.
func TestAnOtherEndThatIsNotThere(t *testing.T) {
	t.Parallel()
	f := &fakeFault{far: chaos.Names{"leader"}}
	s := &testbed{t: t, faults: map[string]*fakeFault{"cut": f}, ask: func(_, fact string) (string, error) {
		if fact == chaos.FactRole {
			return "follower", nil
		}
		return "true", nil
	}}
	s.wantVerdict(s.run(t.Context(), scheduled("{use: cut, on: client-1, at: 10ms}")), results.Unknown, "the other end of the links: target leader: none")
	if f.healed() != 0 {
		t.Errorf("%d heals of what was not injected", f.healed())
	}
}
