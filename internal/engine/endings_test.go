package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/engine/control"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// shortly sets short deadlines for what a test makes fail.
func shortly(r *run) {
	r.within = deadlines{
		hello: 5 * time.Second, ready: 5 * time.Second, recover: 60 * time.Millisecond, stop: 100 * time.Millisecond, close: 10 * time.Second,
		collect: 10 * time.Second,
	}
}

// unanswered sets deadlines for a final read that fails, while nodes end in time.
func unanswered(r *run) {
	shortly(r)
	r.within.stop = r.within.close
}

// TestAClientThatFailsMakesTheRunUnknown goes through the ways in which a client can withhold what it saw.
func TestAClientThatFailsMakesTheRunUnknown(t *testing.T) {
	t.Parallel()
	sends := func(b string) func(*fakeNode) {
		return func(a *fakeNode) {
			a.grant()
			a.release()
			_, _ = a.out.Write([]byte(b))
			a.pause(time.Hour)
		}
	}
	for _, c := range []struct {
		name   string
		script script
		reason string
	}{
		{"no last word", script{ends: func(*fakeNode, *wire.Done) error { return errEnds }}, "client-1 ended without its final message"},
		{"a word of its failure at its end", script{ends: func(a *fakeNode, _ *wire.Done) error {
			return errors.Join(a.conn.Send(wire.Frame{Type: wire.TypeFailed, Failed: &wire.Failed{Error: "the disk is full"}}), errEnds)
		}}, "client-1: the disk is full"},
		{"an end in the middle", script{begins: func(a *fakeNode) { a.grant(); a.release(); a.die() }}, "client-1 ended without a fault"},
		{"a word of its failure", script{begins: func(a *fakeNode) {
			_ = a.conn.Send(wire.Frame{Type: wire.TypeFailed, Failed: &wire.Failed{Error: "no more memory"}})
		}}, "client-1: no more memory"},
		{"what is neither a frame nor a batch", script{begins: sends("?")}, "client-1: control stream: control stream breaks the protocol: \"?\" at the start of a frame or batch"},
		{"a frame that is no JSON", script{begins: sends("{]\n")}, "client-1: control stream:"},
		{"a batch that breaks off", script{begins: func(a *fakeNode) {
			_, _ = a.out.Write([]byte("\x01\x02\x00\x00\x00abc"))
			a.die()
		}}, "client-1: control stream:"},
		{"a record with a wrong checksum", script{begins: sends("\x01\x01\x00\x00\x00" + strings.Repeat("x", 64))}, "client-1: control stream:"},
		{"what is neither, at its end", script{ends: func(a *fakeNode, _ *wire.Done) error {
			_, _ = a.out.Write([]byte("?"))
			return errEnds
		}}, "client-1: control stream: control stream breaks the protocol: \"?\" at the start of a frame or batch"},
		{"a frame without an end", script{begins: sends("{" + strings.Repeat("x", 16<<20+256<<10))}, "client-1: control stream: control stream breaks the protocol: a frame of more than 16777216 bytes"},
		{"a flood of what nobody asked for", script{begins: func(a *fakeNode) {
			for range control.MaxTalk + 1 {
				_ = a.conn.Send(wire.Frame{Type: wire.TypeLog, Log: &wire.Log{Text: "I am a lock"}})
			}
			a.pause(time.Hour)
		}}, "client-1: control stream breaks the protocol: log: more than 10000 unexpected frames"},
		{"a flood of readies", script{begins: func(a *fakeNode) {
			for range control.MaxTalk + 1 {
				_ = a.conn.Send(wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{}})
			}
			a.pause(time.Hour)
		}}, "client-1: control stream breaks the protocol: ready: more than 10000 unexpected frames"},
		{"a second process that says it is the same client", script{begins: func(a *fakeNode) {
			other := wire.NewHello("fake again", "test")
			other.PID = 7
			_ = a.conn.Send(wire.Frame{Type: wire.TypeHello, Hello: other})
			a.pause(time.Hour)
		}}, fmt.Sprintf(`client-1: control stream breaks the protocol: hello: a second one, of "fake again" (pid 7), after that of "fake" (pid %d): two processes claim to be client-1`, os.Getpid())},
		{"a result of no order", script{begins: func(a *fakeNode) {
			_ = a.conn.Send(wire.Frame{Type: wire.TypeResult, Result: &wire.Result{ID: 99, Outcome: wire.OutcomeOK, Grant: "mine"}})
			a.pause(time.Hour)
		}}, "client-1: control stream breaks the protocol: result: its id is 99, but no order waits for it"},
		{"a grant of a user that there is not", script{begins: func(a *fakeNode) {
			a.user = 1
			a.grant()
			a.pause(time.Hour)
		}}, "client-1: control stream breaks the protocol: event 1 (acquire invoke of client-1/1): there was no such order"},
		{"no end", script{ends: func(a *fakeNode, _ *wire.Done) error { <-a.life.Done(); return errEnds }}, "client-1 did not end"},
		{"events that found no room, by its own count", script{ends: func(_ *fakeNode, d *wire.Done) error { d.Dropped = 3; return nil }}, "3 events were dropped"},
		{"events that found no room, by its history", script{ends: func(a *fakeNode, d *wire.Done) error {
			a.emit(history.Event{Kind: history.Dropped, Phase: history.Info, Value: 4})
			d.Recorded++
			return nil
		}}, "4 events were dropped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &testbed{t: t, tune: shortly, scripts: map[string]script{"client-1": c.script}}
			got := s.run(t.Context(), strings.Replace(scheduled(), `">=1"`, `">=0"`, 1))
			s.wantVerdict(got, results.Unknown, c.reason)
		})
	}
}

// lastEvent has client-1 send one more event after the stop. It calls f once that is recorded, before anything else
// is read.
func lastEvent(t *testing.T, f func(s *testbed, client *control.Process)) *testbed {
	s := &testbed{t: t, scripts: map[string]script{"client-1": {ends: func(a *fakeNode, d *wire.Done) error {
		a.emit(history.Event{Kind: history.Stall, Phase: history.Info, Value: 1})
		d.Recorded++
		return nil
	}}}}
	s.tune = func(r *run) {
		shortly(r)
		r.processes.Events = func(batch []history.Event) {
			if batch[0].Kind == history.Stall {
				f(s, r.processes.All[0])
			}
		}
	}
	return s
}

// TestAStreamThatDoesNotEnd is waited for until the last deadline. Then the run is unknown, and the client's history
// is incomplete.
func TestAStreamThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := lastEvent(t, func(s *testbed, client *control.Process) {
		judged := make(chan struct{})
		s.t.Cleanup(func() { close(judged) })
		<-judged
	})
	got := s.run(t.Context(), scheduled())
	if got.err != nil || !errors.Is(got.wrong, history.ErrCorrupt) || got.report.Verdict != results.Unknown {
		t.Errorf("%s; the run ended with %v, the judge with %v", got.report.Verdict, got.err, got.wrong)
	}
	if !slices.Contains(got.report.Reasons, "client-1: its stream did not end") {
		t.Errorf("the run is unknown because of %q", got.report.Reasons)
	}
}

// TestAHistoryThatCannotBeClosed: what was not written is unknown.
func TestAHistoryThatCannotBeClosed(t *testing.T) {
	t.Parallel()
	s := lastEvent(t, func(_ *testbed, client *control.Process) { _ = client.File.Close() })
	s.wantVerdict(s.run(t.Context(), scheduled()), results.Unknown, "client-1: history: ")
}

// silenced is a client that takes the lock and sends nothing more, although it continues.
func silenced(a *fakeNode) {
	a.grant()
	_ = a.out.(io.Closer).Close()
	a.pause(time.Hour)
}

// TestALostClientLeavesNoZero: the last actions of a client that ended unasked are unknown. The run names it and what
// it held, and no checker is clean; a violation that its events prove is still a failure. Its hold has an end only if
// its process was seen to die.
func TestALostClientLeavesNoZero(t *testing.T) {
	t.Parallel()
	later := func(a *fakeNode) { // client-2's grants do not overlap those of client-1, as far as received
		a.pause(20 * time.Millisecond)
		a.token = 100
		cycles(a)
	}
	for _, c := range []struct {
		name          string
		first, second func(*fakeNode)
		dead          int
		ended         string
		verdict       results.Verdict
		found         results.Verdict // of exclusion
		reason        string
	}{
		{"seen to die", func(a *fakeNode) { a.grant(); a.die() }, later, 1, "context canceled", results.Unknown, results.Unknown, "client-1 ended without its final message (context canceled); its actions after its last event, at "},
		{"never seen to die", silenced, later, 0, "", results.Unknown, results.Unknown, "client-1 ended without its final message, and the end of its process was not seen: it may have gone on; its actions after its last event, at "},
		{"a double grant before", func(a *fakeNode) { a.grant(); a.pause(10 * time.Millisecond); a.renew(); silenced(a) }, cycles, 0, "", results.Fail, results.Violated, "double_grants 0: found "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &testbed{t: t, scripts: map[string]script{"client-1": {begins: c.first}, "client-2": {begins: c.second}}}
			got := s.run(t.Context(), strings.NewReplacer("clients: 1", "clients: 2", "for: 400ms", "for: 4s").Replace(scheduled()))
			s.wantVerdict(got, c.verdict, c.reason, ", cannot be judged, nor the grants that it held then: lock-0 (grant 1 of client-1/0)")
			one, two := got.env.Clients[0], got.env.Clients[1]
			if one.Dead || !one.Lost || one.Ended != c.ended || one.Recorded < 2 || two.Lost || two.Dead || two.Recorded == 0 {
				t.Errorf("the clients' last words: %+v", got.env.Clients)
			}
			if dead := got.events(t, history.Dead); len(dead) != c.dead {
				t.Errorf("the history tells of %+v", dead)
			}
			for _, f := range got.report.Findings {
				zero := slices.ContainsFunc(slices.Collect(maps.Values(f.Counts)), func(n *int64) bool { return n != nil })
				if f.Checker == "exclusion" && f.Verdict != c.found || zero && f.Verdict == results.Clean {
					t.Errorf("%s is %s", f.Checker, f.Verdict)
				}
			}
		})
	}
}

// TestAHistoryThatIsNotWholeIsNotJudged: fewer events arrived than the client says it sent.
func TestAHistoryThatIsNotWholeIsNotJudged(t *testing.T) {
	t.Parallel()
	for _, by := range []int64{1, -1} {
		s := &testbed{t: t, scripts: map[string]script{"client-1": {ends: func(_ *fakeNode, d *wire.Done) error { d.Recorded += by; return nil }}}}
		got := s.run(t.Context(), scheduled())
		if !errors.Is(got.wrong, history.ErrCorrupt) || !strings.Contains(got.wrong.Error(), "client-1.lqh") {
			t.Errorf("the judge says %v", got.wrong)
		}
		if got.report.Verdict != results.Unknown || got.report.Counts["double_grants"] != nil {
			t.Errorf("%s, %v", got.report.Verdict, got.report.Counts["double_grants"])
		}
	}
}

// TestARunThatDoesNotComeUp is an error, and its nodes get a stop.
func TestARunThatDoesNotComeUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		bed          *testbed
	}{
		{"a client that fails at its start", "client-1: no way to the service", &testbed{scripts: map[string]script{"client-1": {starts: func(a *fakeNode) error {
			return errors.Join(a.conn.Send(wire.Frame{Type: wire.TypeFailed, Failed: &wire.Failed{Error: "no way to the service"}}), errEnds)
		}}}}},
		{"a client that ends at its start", "client-1: no ready: its control stream ended", &testbed{scripts: map[string]script{"client-1": {starts: func(*fakeNode) error {
			return errEnds
		}}}}},
		{"a client that never says hello", "client-1: no hello: not within 30s", &testbed{mute: true}},
		{"a client that is never ready", "client-1: no ready: not within 200ms", &testbed{scripts: map[string]script{"client-1": {starts: func(a *fakeNode) error {
			<-a.life.Done()
			return errEnds
		}}}, tune: func(r *run) { r.within.hello = 200 * time.Millisecond }}},
		{
			"a service that does not serve", "fake does not serve after 50ms: a machine that says no",
			&testbed{ready: func() error { return errTest }, tune: func(r *run) { r.within.ready = 50 * time.Millisecond }},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := c.bed
			s.t = t
			got := s.run(t.Context(), scheduled())
			if missing := (plan.MissingError{}); !errors.As(got.err, &missing) || !strings.Contains(got.err.Error(), c.reason) {
				t.Errorf("the run ended with %v", got.err)
			}
			if to, err := os.Readlink(filepath.Join(got.dir, "..", "latest")); err == nil {
				t.Errorf("latest points to %s", to)
			}
			if slices.Contains(got.left, "client-1") {
				t.Error("a client was left behind")
			}
		})
	}
}

// TestAServiceIsWaitedFor until it serves; it is described when all is over, and left.
func TestAServiceIsWaitedFor(t *testing.T) {
	t.Parallel()
	asked, left := 0, 0
	s := &testbed{t: t, closes: func() error { left++; return nil }, ready: func() error {
		if asked++; asked < 4 {
			return errTest
		}
		return nil
	}}
	got := s.run(t.Context(), scheduled())
	s.wantVerdict(got, results.Pass)
	if left != 1 || got.env.Service["version"] != "of a test" {
		t.Errorf("it was left %d times, and said %v of itself", left, got.env.Service)
	}
}

// TestTheServiceMustServeAgain after the last heal, as a whole and on each of its servers.
func TestTheServiceMustServeAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, reason string }{
		{"the service", "the service did not recover: fake does not serve after 60ms: a machine that says no"},
		{"one server", `server-1 did not recover: it does not serve (last answer "false")`},
		{"a server that does not answer", "server-1 did not recover: it does not serve (last answer \"\"): context deadline exceeded\na machine that says no"},
		{"a server that is gone", "the service did not recover: server-1 is not running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			broken := make(chan struct{})
			is := func(name string) bool {
				select {
				case <-broken:
					return name == c.name
				default:
					return false
				}
			}
			f := &fakeFault{}
			s := &testbed{t: t, tune: shortly, faults: map[string]*fakeFault{"trouble": f}}
			s.ready = func() error {
				if is("the service") || is("a server that is gone") {
					return errTest
				}
				return nil
			}
			s.ask = func(_, _ string) (string, error) {
				switch {
				case is("one server"):
					return "false", nil
				case is("a server that does not answer"):
					return "", errTest
				}
				return "true", nil
			}
			f.heal = func() (history.Receipt, error) {
				close(broken)
				if is("a server that is gone") {
					s.fake("server-1").die()
				}
				return history.Receipt{Status: history.Installed}, nil
			}
			got := s.run(t.Context(), scheduled("{use: trouble, on: client-1, at: 10ms}"))
			s.wantVerdict(got, results.Unknown, c.reason, "after the last heal the service was not seen serving again")
			if got.env.Recovered {
				t.Error("it is said to have recovered")
			}
		})
	}
}

// protected returns a scenario with a resource that the lock protects.
func protected(resource string) string {
	return strings.Replace(scheduled(), "clients: 1,", "clients: 1, resource: {use: "+resource+", guard: none},", 1)
}

// TestTheFinalRead: without it, losses are unknown.
func TestTheFinalRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reason string
		register     script
	}{
		{"it is read", "", script{commanded: func(*fakeNode, wire.Command) *wire.Result {
			return &wire.Result{Outcome: wire.OutcomeOK, Value: 5, Count: 7}
		}}},
		{"it is refused", "final read: fail of lock-0: out of order", script{commanded: func(*fakeNode, wire.Command) *wire.Result {
			return &wire.Result{Outcome: wire.OutcomeFail, Error: "out of order"}
		}}},
		{"nobody knows", "final read: info of lock-0", script{commanded: func(*fakeNode, wire.Command) *wire.Result {
			return &wire.Result{Outcome: wire.OutcomeInfo}
		}}},
		{"no answer", "final read: register: final:", script{commanded: func(*fakeNode, wire.Command) *wire.Result { return nil }}},
		{"an end in place of an answer", "final read: register: final: its control stream ended", script{commanded: func(a *fakeNode, _ wire.Command) *wire.Result {
			a.die()
			return nil
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &testbed{t: t, tune: shortly, scripts: map[string]script{registerNode: c.register}}
			got := s.run(t.Context(), protected(registerNode))
			final := got.events(t, history.Final)
			if c.reason == "" {
				s.wantVerdict(got, results.Pass)
				if !got.env.FinalRead || len(final) != 1 || final[0].Value != 5 || final[0].Valid != 7 {
					t.Errorf("final read %t: %+v", got.env.FinalRead, final)
				}
				return
			}
			s.wantVerdict(got, results.Unknown, c.reason, "there was no final read")
			if got.env.FinalRead || len(final) != 0 {
				t.Errorf("final read %t: %+v", got.env.FinalRead, final)
			}
		})
	}
}

// TestWritesToAnAttachedServiceAreRemoved: a failure to remove it is an error of the run.
func TestWritesToAnAttachedServiceAreRemoved(t *testing.T) {
	t.Parallel()
	for _, fails := range []error{nil, errTest} {
		s := &testbed{t: t, removes: func() (string, error) { return "3 keys", fails }, tune: func(r *run) {
			r.plan.Prefix, r.options.Attached = "bench:1/", &plan.Attached{}
		}}
		got := s.run(t.Context(), scheduled())
		switch c := got.env.Cluster; {
		case fails == nil:
			if got.err != nil || c["attached_removed"] != "3 keys" || c["attached_looked_at"] != "all but one key" {
				t.Errorf("the run ended with %v; env.json tells %v", got.err, c)
			}
		case got.err == nil || !strings.HasPrefix(got.err.Error(), "the keys below bench:1/ on  could not be removed: a machine that says no"):
			t.Errorf("the run ended with %v", got.err)
		}
	}
}

// TestServersBehindOneAddress are named if they agree among themselves, and rejected if the promise rests on a single
// one.
func TestServersBehindOneAddress(t *testing.T) {
	t.Parallel()
	two := topology.Met{Address: "10.0.0.7:1", Servers: []string{"a", "b"}}
	alone := topology.Met{Address: two.Address, Servers: two.Servers, Alone: true}
	for _, c := range []struct {
		name   string
		met    topology.Met
		unmet  error
		reason string // why the run is rejected; "": it is not
	}{
		{"members", two, nil, ""},
		{"servers", alone, nil, "--attach: 2 servers behind 10.0.0.7:1 (a, b), but the lock needs one"},
		{"a pooler", topology.Met{}, topology.NotItself(two.Address, "no session"), "--attach: 10.0.0.7:1: there is a pooler in between: no session"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &testbed{t: t, removes: func() (string, error) { return "", nil }, met: []topology.Met{c.met}, unmet: c.unmet, tune: func(r *run) {
				r.plan.Prefix, r.options.Attached = "bench:1/", &plan.Attached{}
			}}
			got := s.run(t.Context(), scheduled())
			if c.reason != "" {
				if got.err == nil || !strings.Contains(got.err.Error(), c.reason) {
					t.Errorf("%v, want %q", got.err, c.reason)
				}
				return
			}
			if got.err != nil || got.env.Cluster["attached_behind_10.0.0.7:1"] != "a, b" || !slices.ContainsFunc(got.env.Warnings, func(w string) bool { return strings.Contains(w, "2 servers behind") }) {
				t.Errorf("%v; env.json tells %v, %q", got.err, got.env.Cluster, got.env.Warnings)
			}
		})
	}
}

// TestAResourceThatDoesNotEnd withholds what it saw.
func TestAResourceThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, tune: shortly, scripts: map[string]script{registerNode: {
		commanded: func(*fakeNode, wire.Command) *wire.Result { return &wire.Result{Outcome: wire.OutcomeOK} },
		ends:      func(a *fakeNode, _ *wire.Done) error { <-a.life.Done(); return errEnds },
	}}}
	s.wantVerdict(s.run(t.Context(), protected(registerNode)), results.Unknown, "stopping the resource: register did not end", "register ended without its final message")
}

// TestTheFinalReadOfReplicas: a majority must answer, and the value written last under the latest epoch counts.
func TestTheFinalReadOfReplicas(t *testing.T) {
	t.Parallel()
	ok := func(value int64, epoch uint64, number int64) *wire.Result {
		return &wire.Result{Outcome: wire.OutcomeOK, Value: value, Count: value, Epoch: epoch, Number: number}
	}
	no := &wire.Result{Outcome: wire.OutcomeFail, Error: "cut off"}
	for _, c := range []struct {
		name    string
		answers []*wire.Result
		want    int64
		reason  string
	}{
		{"all agree", []*wire.Result{ok(5, 1, 1), ok(5, 1, 1), ok(5, 1, 1)}, 5, ""},
		{"a later epoch", []*wire.Result{ok(5, 1, 9), ok(6, 2, 1), ok(5, 1, 9)}, 6, ""},
		{"an earlier epoch answers last", []*wire.Result{ok(6, 2, 1), ok(6, 2, 1), ok(5, 1, 9)}, 6, ""},
		{"a later number of one epoch", []*wire.Result{ok(5, 1, 1), ok(6, 1, 2), ok(5, 1, 1)}, 6, ""},
		{"an earlier number answers last", []*wire.Result{ok(6, 1, 2), ok(5, 1, 1), ok(5, 1, 1)}, 6, ""},
		{"one does not answer", []*wire.Result{no, ok(5, 1, 1), ok(6, 2, 1)}, 6, ""},
		{"two do not answer", []*wire.Result{ok(5, 1, 1), no, no}, 0, "final read: fail of lock-0: cut off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &testbed{t: t, tune: unanswered, scripts: map[string]script{}}
			for i, name := range []string{"replica-1", "replica-2", "replica-3"} {
				s.scripts[name] = script{commanded: func(*fakeNode, wire.Command) *wire.Result { return c.answers[i] }}
			}
			got := s.run(t.Context(), protected("trio"))
			final := got.events(t, history.Final)
			if c.reason != "" {
				s.wantVerdict(got, results.Unknown, c.reason, "there was no final read")
				return
			}
			s.wantVerdict(got, results.Pass)
			if len(final) != 1 || final[0].Value != c.want || final[0].Valid != c.want {
				t.Errorf("final read %+v, want %d", final, c.want)
			}
		})
	}
}

// TestClocksThatDiffer: their difference is measured, written to the history, and measured again at the end.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	const hour = int64(time.Hour)
	for _, runs := range []time.Duration{0, time.Minute, -time.Minute} {
		away := make(chan struct{})
		s := &testbed{t: t, ahead: func() int64 {
			time.Sleep(time.Millisecond) // else a round trip takes no time in a bubble, and the error is 0
			select {
			case <-away:
				return hour + int64(runs)
			default:
				return hour
			}
		}}
		s.scripts = map[string]script{"client-1": {begins: func(a *fakeNode) {
			a.grant()
			a.pause(20 * time.Millisecond)
			a.release()
			close(away)
		}}}
		got := s.run(t.Context(), scheduled())
		if runs != 0 {
			s.wantVerdict(got, results.Unknown, "client-1: its clock was set or stood still")
			continue
		}
		s.wantVerdict(got, results.Pass)
		if goes := s.fake("client-1").startAt; goes < got.env.Start+hour/2 {
			t.Errorf("the run starts at %d; the client, an hour ahead, is to begin at %d", got.env.Start, goes)
		}
		ok := got.events(t, history.Acquire)
		if len(ok) != 2 || ok[1].Time < got.env.Start-hour/2 || ok[1].Time > got.env.End+hour/2 || ok[1].Valid < ok[1].Time || ok[1].Value > ok[1].Time+hour/2 {
			t.Errorf("the run went from %d to %d: %+v", got.env.Start, got.env.End, ok)
		}
		m, err := history.OpenAll(got.dir + "/" + results.DirHistory)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for _, h := range m.Processes() {
			strange := h.Process == "client-1"
			if strange != (h.ErrorNS > 0) || strange != (h.OffsetNS < -hour/2) || strange == h.Exact() || strange != (h.Clock != nil) {
				t.Errorf("%+v", h)
			}
			if err := h.Error(got.env.End); strange && (err <= 0 || err > int64(100*time.Millisecond)) {
				t.Errorf("its times may be wrong by %d", err)
			}
		}
	}
}

// TestAClockThatCannotBeComparedIsRefused: its times would prove nothing. One comparable to 50 ms is accepted.
func TestAClockThatCannotBeComparedIsRefused(t *testing.T) {
	t.Parallel()
	for answers, refused := range map[time.Duration]bool{2 * watch.MaxDrift: false, 2*watch.MaxDrift + 5*time.Millisecond: true} {
		s := &testbed{t: t, ahead: func() int64 { time.Sleep(answers); return 0 }}
		got := s.run(t.Context(), scheduled())
		if refused != (got.err != nil) || refused && !strings.Contains(got.err.Error(), "client-1: its clock can only be compared to") {
			t.Errorf("it answers after %v: the run ended with %v", answers, got.err)
		}
	}
}

// TestInterruptedRunHealsAndReports, in whatever phase it is interrupted.
func TestInterruptedRunHealsAndReports(t *testing.T) {
	t.Parallel()
	for _, phase := range []string{results.TimeUp, results.TimeLoad, results.TimeHeal, results.TimeSettle, "chaos", "step"} {
		t.Run(phase, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := &fakeFault{}
			s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": f}, progress: func(p Progress) {
				if p.Phase == phase && (phase != results.TimeLoad || p.Faults == 1) {
					cancel()
				}
			}}
			text := scheduled("{use: trouble, on: client-1, at: 10ms}")
			switch phase {
			case "chaos":
				f.inject = injects(history.Installed, nil)
				f.kind.Kills = false
				inner := f.inject
				f.inject = func(sc chaos.Scope) (history.Receipt, error) { cancel(); return inner(sc) }
			case "step":
				text = directed("{do: acquire, user: A}", "{inject: trouble, on: A}", "{await: event, event: lost, user: A}")
				s.progress = func(p Progress) {
					if strings.HasPrefix(p.Text, "await") {
						cancel()
					}
				}
			}
			got := s.run(ctx, text)
			s.wantVerdict(got, results.Unknown, "the run was interrupted")
			if !got.env.Interrupted {
				t.Error("env.json does not tell of the interruption")
			}
			if to, err := os.Readlink(filepath.Join(got.dir, "..", "latest")); err == nil {
				t.Errorf("latest points to %s", to)
			}
			if len(got.faults) != f.healed() {
				t.Errorf("%d faults, %d heals", len(got.faults), f.healed())
			}
			for _, x := range got.faults {
				if x.Healed == nil || x.Healed.Status != history.Installed || x.End == 0 {
					t.Errorf("%s is not healed: %+v", x.Name, x)
				}
			}
			if phase == "chaos" && got.faults[0].Receipt.Status != history.Installed {
				t.Errorf("an injection was cut short: %+v", got.faults[0].Receipt)
			}
			if slices.Contains(got.left, "client-1") {
				t.Error("a client was left behind")
			}
			if phase != results.TimeUp && !got.env.Recovered {
				t.Error("nobody asked whether the service serves again")
			}
		})
	}
}

// TestARealRunPasses uses real clients, a real register and the lock that is right.
func TestARealRunPasses(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, realClients: true, realTime: true, faults: map[string]*fakeFault{"trouble": {}}}
	text := strings.Replace(scheduled(entry), "use: fake", "use: memory", 1)
	text = strings.Replace(text, "for: 400ms", "for: 1s", 1) // the fault must be injected in time, though the machine stands still for some 200 ms
	text = strings.Replace(text, "{use: acquire-release, clients: 1, timeout: 100ms}", "{use: counter, clients: 2, hold: 1ms, resource: {use: register, guard: none}}", 1)
	text = strings.Replace(text, `double_grants: "0"`, `double_grants: "0", lost_updates: "0", overlapping_holds: "0"`, 1)
	got := s.run(t.Context(), text)
	s.wantVerdict(got, results.Pass)
	if to, err := os.Readlink(filepath.Join(got.dir, "..", "latest")); err != nil || to != filepath.Base(got.dir) {
		t.Errorf("latest points to %q: %v", to, err)
	}
	if got.report.Judged.Grants == 0 || !got.env.FinalRead || len(got.events(t, history.Final)) == 0 {
		t.Errorf("judged %+v, final read %t", got.report.Judged, got.env.FinalRead)
	}
}

// TestARealRunFails does the same with a lock that never excludes.
func TestARealRunFails(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, realClients: true}
	text := strings.Replace(scheduled(), "use: fake", "use: memory, lock: never-excludes", 1)
	got := s.run(t.Context(), strings.Replace(text, "clients: 1,", "clients: 2, hold: 5ms,", 1))
	s.wantVerdict(got, results.Fail, "double_grants 0: found")
}

// envStalled makes the test binary carry out one run, in which its parent stops it.
const envStalled = "LOCKQUAKE_TEST_STALLED"

// TestTheEnginesOwnStallIsRecorded: the engine would inject and heal late. The run has its own process, which can be
// stopped.
func TestTheEnginesOwnStallIsRecorded(t *testing.T) {
	const stall = 250 * time.Millisecond
	if os.Getenv(envStalled) == "" {
		t.Parallel()
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), envStalled+"=1")
		runtime.LockOSThread() // when the thread that started it ends, the kernel kills the child, stopped or not
		defer runtime.UnlockOSThread()
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		over, err := cmd.StdinPipe() // the child's run lasts until it is closed
		if err != nil {
			t.Fatal(err)
		}
		defer over.Close()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = []*os.File{w}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if _, err := fmt.Fscanln(r, new(string)); err != nil {
			t.Errorf("the child did not come to its load: %v", err)
		}
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		var status syscall.WaitStatus
		for !status.Stopped() { // a busy machine delivers the signal late
			if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil && !errors.Is(err, syscall.EINTR) {
				t.Fatalf("%v: %s", err, out.String())
			}
		}
		time.Sleep(stall)
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = over.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, out.String())
		}
		return
	}
	s := &testbed{t: t, realTime: true, scripts: map[string]script{"client-1": {begins: func(a *fakeNode) {
		a.grant()
		a.release()
		a.pause(20 * time.Millisecond)
		_, _ = fmt.Fprintln(os.NewFile(3, "ready"), "ready")
		a.pause(time.Hour)
	}}}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); cancel() }()
	got := s.run(ctx, strings.Replace(scheduled(), "for: 400ms", "for: 60s", 1))
	var longest int64
	for _, e := range got.events(t, history.Stall) {
		longest = max(longest, e.Value)
	}
	if longest < int64(stall) {
		t.Errorf("it stood still for %v, and %v are recorded", stall, time.Duration(longest))
	}
}
