package engine

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// TestAttachedServersAreNeverReset: even if kept servers are requested, external ones are not taken over.
func TestAttachedServersAreNeverReset(t *testing.T) {
	t.Parallel()
	kept := &KeptServers{}
	serves := &plan.Plan{Specs: []node.Spec{{Name: "redis-1", Role: node.Server}}}
	for _, c := range []struct {
		plan *plan.Plan
		o    Options
		want *KeptServers
	}{
		{serves, Options{Kept: kept}, kept},
		{serves, Options{Request: plan.Request{Attached: &plan.Attached{}}, Kept: kept}, nil},
		{&plan.Plan{Specs: []node.Spec{{Name: "client-1", Role: node.Client}}}, Options{Kept: kept}, nil},
	} {
		if got := c.o.sharing(c.plan); got != c.want {
			t.Errorf("attached %v: %v", c.o.Attached, got)
		}
	}
}

// several makes runs on servers that are kept if possible. They are in one bubble, see testbed.run.
type several struct {
	*testbed
	kept KeptServers
	out  string
	runs int
}

func newSeveral(t *testing.T) *several {
	t.Helper()
	s := &several{out: t.TempDir(), testbed: &testbed{t: t, reset: func() ([]string, error) { return []string{"empty"}, nil }}}
	t.Cleanup(func() {
		if err := s.kept.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// next makes the next run.
func (s *several) next(text string) finishedRun {
	s.t.Helper()
	o := s.options(text)
	s.runs++
	o.Kept, o.Out, o.Started = &s.kept, s.out, time.Now().Add(time.Duration(s.runs)*time.Second)
	dir, err := Run(s.t.Context(), o)
	return s.judge(finishedRun{dir: dir, err: err})
}

// mustTake requires that a run had the servers of an earlier one.
func (s *several) mustTake(got finishedRun, from string) {
	s.t.Helper()
	s.wantVerdict(got, results.Pass)
	if e := got.env; !e.Kept || e.Fresh != "" || e.KeptFrom != from || len(e.KeptProof) != 6 {
		s.t.Errorf("kept %t from %q (want %q), fresh because of %q, with the proof %v", e.Kept, e.KeptFrom, from, e.Fresh, e.KeptProof)
	}
	if seen := got.env.KeptProof[0].Evidence; !strings.HasSuffix(seen, ", as at its start") {
		s.t.Errorf("the server lives as it began, and the proof is %q", seen)
	}
	for _, p := range got.env.KeptProof {
		if p.Evidence == "" {
			s.t.Errorf("nothing says how it was seen that %s", p.What)
		}
	}
}

// TestServersServeAnyScenario: lock, clients, users, resource and name differ, and the server is the same.
func TestServersServeAnyScenario(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		idle := script{begins: func(a *fakeNode) { a.pause(time.Hour) }} // one fake client has the lock to itself
		s.scripts = map[string]script{"client-2": idle, "client-3": idle}
		first := s.next(scheduled())
		if first.env.Kept || first.env.Fresh != "" {
			t.Errorf("the first run: kept %t, fresh because of %q", first.env.Kept, first.env.Fresh)
		}
		server, client := s.fake("server-1"), s.fake("client-1")
		if client.life.Err() == nil {
			t.Error("a client of the first run outlives it")
		}
		from := filepath.Base(first.dir)
		other := strings.NewReplacer(
			"name: fake", "name: other", "use: fake,", "use: fake, lock: other,",
			"clients: 1,", "clients: 3, users: 1, resource: {use: register, guard: none},").Replace(scheduled())
		second := s.next(other)
		s.mustTake(second, "../fake/"+from)
		if dir := filepath.Base(filepath.Dir(second.dir)); dir != "other" || len(second.env.Clients) != 4 {
			t.Errorf("the second run is in %s with %d clients and resources, want other and 4", dir, len(second.env.Clients))
		}
		if s.fake("client-1") == client || s.fake("client-3") == nil {
			t.Error("the clients of the second run are not its own")
		}
		if _, left := first.env.Cluster["address_register"]; left || second.env.Cluster["address_register"] != "" {
			t.Errorf("the first run tells of the second one's nodes: %v", first.env.Cluster)
		}
		s.mustTake(s.next(strings.Replace(scheduled(), "clients: 1,", "clients: 2, resource: {use: trio, guard: none},", 1)), from)

		memory := strings.NewReplacer("name: fake", "name: within", "{use: fake, ttl: 5s}", "{use: memory, ttl: 5s}", "clients: 1", "clients: 1, hold: 5ms").Replace(scheduled())
		s.realClients = true // the memory backend has no servers, and leaves those of others alone
		if got := s.next(memory); got.env.Kept || got.env.Fresh != "" {
			t.Errorf("on memory: kept %t, fresh because of %q", got.env.Kept, got.env.Fresh)
		}
		s.realClients = false
		s.mustTake(s.next(directed("{do: acquire, user: A}", "{do: release, user: A}")), from)
		if s.fake("server-1") != server || server.life.Err() != nil {
			t.Error("the server is another one")
		}
	})
}

// TestServersThatAreNotProvenAreReplaced, with the reason, and end.
func TestServersThatAreNotProvenAreReplaced(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, why string
		change    func(s *several)
	}{
		{"a reset that left something", "the reset was incomplete: there is a key", func(s *several) {
			s.reset = func() ([]string, error) { return nil, errors.New("there is a key") }
		}},
		{"a setting that was changed", `limit is "2" but was "1"`, func(s *several) { s.settings = map[string]string{"limit": "2"} }},
		{"a server that is stopped", "server-1 is stopped", func(s *several) { s.stopped["server-1"] = true }},
		{"a server that died", "server-1 has no process", func(s *several) { s.fake("server-1").die() }},
		{"more servers", "this run needs server-2, which is not among the kept servers", func(s *several) { s.servers = 2 }},
		{"an agent", "faults of this run need the agent, but the kept servers started without one", func(s *several) {
			s.faults = map[string]*fakeFault{"good": {kind: chaos.Kind{Needs: []chaos.Capability{chaos.CanPause}}}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSeveral(t)
				s.settings = map[string]string{"limit": "1"}
				s.next(scheduled())
				server := s.fake("server-1")
				c.change(s)
				text := scheduled()
				if s.faults != nil {
					text = scheduled("{use: good, on: server-1, at: 1ms}")
				}
				got := s.next(text)
				if got.err != nil || got.env.Kept || !strings.Contains(got.env.Fresh, c.why) {
					t.Errorf("%v: kept %t, fresh because of %q; want %q", got.err, got.env.Kept, got.env.Fresh, c.why)
				}
				if server.life.Err() == nil || s.fake("server-1") == server {
					t.Error("the server that was not taken over still lives")
				}
			})
		})
	}
}

// TestServersWithUnknownStartAreNotKept: if the agent does not report their links at the start, nothing can be
// compared later.
func TestServersWithUnknownStartAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		s.kept.Agent = true // goroutines have none
		s.next(scheduled())
		const why = "their initial state is unknown: around server-1"
		if got := s.next(scheduled()); got.env.Kept || !strings.HasPrefix(got.env.Fresh, why) {
			t.Errorf("kept %t, fresh because of %q; want %q", got.env.Kept, got.env.Fresh, why)
		}
	})
}

// TestFailedRemovalHindersNoRun: a run whose servers replace others is judged, and ends with the error of their
// removal.
func TestFailedRemovalHindersNoRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		s.next(scheduled())
		s.reset = func() ([]string, error) { return nil, errors.New("there is a key") }
		s.closes = func() error {
			s.closes = nil
			return errors.New("its network stays")
		}
		got := s.next(scheduled())
		if got.err == nil || got.err.Error() != "its network stays" || got.wrong != nil || got.report.Verdict != results.Pass {
			t.Errorf("%v, %v, the verdict is %s: %q", got.err, got.wrong, got.report.Verdict, got.report.Reasons)
		}
	})
}
