package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

func TestDifferences(t *testing.T) {
	t.Parallel()
	then := map[string]string{"a": "1", "b": "2", "gone": "3"}
	if d := differences(map[string]string{"a": "1", "b": "2", "gone": "3"}, then); d != nil {
		t.Errorf("the same differs: %v", d)
	}
	got := differences(map[string]string{"a": "1", "b": "x", "new": "4"}, then)
	want := []string{`b is "x" and was "2"`, `gone is "" and was "3"`, `new is "4" and was ""`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := differences(map[string]string{"c": "1", "d": "1"}, then); len(got) != 4 || got[3] != "2 more" {
		t.Errorf("five differences are told as %q", got)
	}
}

// cleared is a service that can be reset.
type cleared struct {
	topology.Service
	topology.Resetter
}

// TestWhoIsNotKept goes through what a run can leave that no look afterwards would show.
func TestWhoIsNotKept(t *testing.T) {
	t.Parallel()
	kill, _ := chaos.Lookup(faults.Kinds(), "kill")
	keeps, err := kill.New(func(any) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	loses, err := kill.New(func(into any) error { return yaml.UnmarshalWithOptions([]byte("data: lose"), into, yaml.Strict()) })
	if err != nil {
		t.Fatal(err)
	}
	bit, healed := history.Receipt{Status: history.Installed}, &history.Receipt{Status: history.Installed}
	fault := func(f chaos.Fault, r history.Fault) func(*takeover) {
		return func(t *takeover) {
			r.Name, r.Target = "kill", "redis-1"
			*t.faults.Add(plan.Due{Inj: plan.Injection{Kind: kill, Fault: f}}, 0).Fault = r
		}
	}
	for _, c := range []struct {
		name, why string
		change    func(*takeover)
	}{
		{"all is well", "", func(*takeover) {}},
		{"a crash that was healed", "", fault(keeps, history.Fault{Receipt: bit, Healed: healed})},
		{"a crash without a heal", "was not seen healed", fault(keeps, history.Fault{Receipt: bit})},
		{"a heal that was not seen", "was not seen healed", fault(keeps, history.Fault{Receipt: bit, Healed: &history.Receipt{Status: history.Indeterminate}})},
		{"data that is lost", "took data away", fault(loses, history.Fault{Receipt: bit, Healed: healed})},
		{"a fault that was not made", "", fault(loses, history.Fault{Receipt: history.Receipt{Status: history.NotMade}})},
		{"an interruption", "cut short", func(t *takeover) { t.record.Env.Interrupted = true }},
		{"no recovery", "not seen to serve", func(t *takeover) { t.record.Env.Recovered = false }},
		{"a question", "left a question: a step was not met", func(t *takeover) { t.record.Env.Unknown = []string{"a step was not met"} }},
		{"a preparation", "was prepared for a fault (loop-disk)", func(t *takeover) { t.plan.Specs[0].Preparations = []node.Preparation{disk.LoopDisk} }},
		{"a service without reset", "nobody knows how to reset redis", func(t *takeover) { t.nodes.service = nil }},
	} {
		over := &takeover{
			plan:   &plan.Plan{Specs: []node.Spec{{Name: "redis-1", Role: node.Server}}, Backend: listed.Backend{Backend: backends.Backend{Name: "redis"}}},
			record: &rundir.Dir{Env: results.Env{Recovered: true}}, nodes: &deployment{service: cleared{}}, faults: &rundir.Faults{},
		}
		c.change(over)
		if why := over.unfit(); (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", c.name, why, c.why)
		}
	}
}

// TestAttachedServersAreNeverReset: whoever asks for kept servers, somebody else's are not taken over.
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

// several are runs on servers that are kept where that is possible. They are in one bubble, see testbed.run.
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

// mustTake demands that a run had the servers of an earlier one.
func (s *several) mustTake(got finishedRun, from string) {
	s.t.Helper()
	s.wantVerdict(got, results.Pass)
	if e := got.env; !e.Kept || e.Fresh != "" || e.KeptFrom != from || len(e.KeptProof) != 6 {
		s.t.Errorf("kept %t from %q (want %q), fresh because of %q, with the proof %v", e.Kept, e.KeptFrom, from, e.Fresh, e.KeptProof)
	}
	if seen := got.env.KeptProof[0].Evidence; !strings.HasSuffix(seen, ", as it began") {
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
		{"a reset that left something", "the reset left something: there is a key", func(s *several) {
			s.reset = func() ([]string, error) { return nil, errors.New("there is a key") }
		}},
		{"a setting that was changed", `limit is "2" and was "1"`, func(s *several) { s.settings = map[string]string{"limit": "2"} }},
		{"a server that is stopped", "server-1 is stopped", func(s *several) { s.stopped["server-1"] = true }},
		{"a server that died", "server-1 has no process", func(s *several) { s.fake("server-1").die() }},
		{"more servers", "this run needs server-2, which is not among those that stand", func(s *several) { s.servers = 2 }},
		{"an agent", "faults of this run need the agent, and those that stand began to serve without one", func(s *several) {
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

// TestServersThatNobodySawBeginAreNotKept: where the agent does not tell how their links were at the start, nothing can be compared later.
func TestServersThatNobodySawBeginAreNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSeveral(t)
		s.kept.Agent = true // goroutines have none
		s.next(scheduled())
		const why = "how they began was not to be seen: around server-1"
		if got := s.next(scheduled()); got.env.Kept || !strings.HasPrefix(got.env.Fresh, why) {
			t.Errorf("kept %t, fresh because of %q; want %q", got.env.Kept, got.env.Fresh, why)
		}
	})
}

// TestTheClocksOfKeptServersAreRight to within 50 ms of this machine's. An answer may be 5 ms old, and has whole milliseconds at least.
func TestTheClocksOfKeptServersAreRight(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		0:                       "server-1 is 0s to 6ms ahead of this machine, by its own protocol",
		1234 * time.Microsecond: "server-1 is 1.2ms to 7.2ms ahead of this machine, by its own protocol",
		50 * time.Millisecond:   "server-1 is 50ms to 56ms ahead of this machine, by its own protocol",
		-56 * time.Millisecond:  "server-1 is -56ms to -50ms ahead of this machine, by its own protocol",
		51 * time.Millisecond:   "the clock of server-1 is 51ms to 57ms ahead of this machine, by its own protocol",
		-57 * time.Millisecond:  "the clock of server-1 is -57ms to -51ms ahead of this machine, by its own protocol",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &testbed{t: t, reset: func() ([]string, error) { return nil, nil }, ahead: func() int64 { return int64(ahead) }}
			c, err := s.options(scheduled()).Provider.Open(t.Context(), cluster.Request{Run: plan.NewID(), Specs: fakeService{s}.Specs(), LogDir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close(t.Context()) }()
			d := &deployment{cluster: c, service: fakeService{s}.Service(nil)}
			said, err := (&prover{deployment: d, clocks: clocks{d, &processes{}}}).readClocks(t.Context())
			if got := strings.Join(said, "") + fmt.Sprint(err); got != want+"<nil>" && got != want {
				t.Errorf("%v ahead: %q, want %q", ahead, got, want)
			}
		})
	}
}

// TestLinksMustBeAsTheyBegan, and no order may stand.
func TestLinksMustBeAsTheyBegan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		standing, now, was []string
		shared             bool
		want               string
	}{
		{nil, nil, nil, false, "redis-1: nothing<nil>"},
		{nil, []string{"noqueue"}, []string{"noqueue"}, false, "redis-1: [noqueue], as it began<nil>"},
		{nil, []string{"noqueue"}, []string{"noqueue"}, true, "redis-1: the machine's own network<nil>"},
		{nil, []string{"netem", "noqueue"}, []string{"noqueue"}, false, "on the links of redis-1 there is [netem, noqueue], and was [noqueue]"},
		{nil, nil, []string{"noqueue"}, true, "on the links of redis-1 there is [], and was [noqueue]"},
		{[]string{"partition-1"}, nil, nil, false, "the agent owes an undo of partition-1"},
	} {
		around := cluster.Around{Standing: c.standing}
		around.Links, around.Shared = c.now, c.shared
		said, err := unchanged("redis-1", around, c.was)
		if got := said + fmt.Sprint(err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestLinksThatNobodyCanSeeProveNothing: the agent that told of them at the start is gone.
func TestLinksThatNobodyCanSeeProveNothing(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t}
	c, err := s.options(scheduled()).Provider.Open(t.Context(), cluster.Request{Run: plan.NewID(), Specs: fakeService{s}.Specs(), LogDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	if err := cluster.StartAll(t.Context(), c.Nodes); err != nil {
		t.Fatal(err)
	}
	p := &prover{deployment: &deployment{cluster: c}, start: baseline{links: map[string][]string{"server-1": nil}}}
	if said, err := p.links(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "around server-1: ") {
		t.Errorf("it is shown by %q: %v", said, err)
	}
}

// TestAClockThatIsReadCoarselyIsReadAgain, where it may be right and nobody can tell.
func TestAClockThatIsReadCoarselyIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		low, high int // ms
		want      bool
	}{
		{0, 6, false}, {-50, 50, false}, {-50, 51, true}, {-500, 506, true}, {50, 1056, true}, {51, 1057, false}, {-1056, -50, true}, {-1057, -51, false},
	} {
		if got := undecided(time.Duration(c.low)*time.Millisecond, time.Duration(c.high)*time.Millisecond); got != c.want {
			t.Errorf("ahead by %d to %d ms: it is read again: %t", c.low, c.high, got)
		}
	}
}

// TestWhatCannotBeRemovedHindersNoRun: a run whose servers take the place of others is judged, and ends with the error of their removal.
func TestWhatCannotBeRemovedHindersNoRun(t *testing.T) {
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

// TestServersAloneAreHandedOn: whatever else still runs is ended with its run.
func TestServersAloneAreHandedOn(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, reset: func() ([]string, error) { return nil, nil }}
	o := s.options(scheduled())
	p, err := Check(o)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Provider.Open(t.Context(), cluster.Request{Run: plan.NewID(), Specs: p.Specs, LogDir: t.TempDir(), Reuse: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	if err := cluster.StartAll(t.Context(), c.Nodes); err != nil {
		t.Fatal(err)
	}
	over := &takeover{
		kept: &KeptServers{}, plan: p, record: &rundir.Dir{Env: results.Env{Recovered: true}}, faults: &rundir.Faults{},
		nodes: &deployment{plan: p, cluster: c, service: p.Topology.Service(nil)},
	}
	if !over.handOn(t.Context()) || len(over.kept.Nodes()) != 1 || len(over.kept.left) != 1 {
		t.Errorf("handed on are %v, left as %v, because %q", over.kept.Nodes(), over.kept.left, over.kept.why)
	}
	for _, n := range c.Nodes {
		if server := n.Role() == node.Server; n.Process.Running() != server {
			t.Errorf("%s runs: %t", n.Name(), n.Process.Running())
		}
	}
}

// TestWhichServersAreTheSame goes through what makes them others.
func TestWhichServersAreTheSame(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t}
	o := s.options(scheduled())
	specs := fakeService{s}.Specs()
	c, err := o.Provider.Open(t.Context(), cluster.Request{Run: plan.NewID(), Specs: specs, LogDir: t.TempDir(), Reuse: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	client := node.Spec{Name: "client-1", Role: node.Client, Command: func(node.Place) []string { return nil }}
	for _, x := range []struct {
		why    string
		change func(o *Options, s *node.Spec)
	}{
		{"", func(*Options, *node.Spec) {}},
		{"needs another server-1 than the one that stands (limits)", func(_ *Options, s *node.Spec) { s.Limits.CPUs = 1 }},
		{"needs another server-1 than the one that stands (preparations)", func(_ *Options, s *node.Spec) { s.Preparations = []node.Preparation{"loop-disk"} }},
		{"needs another server-1 than the one that stands (image)", func(_ *Options, s *node.Spec) { s.Image = "redis" }},
		{"needs another server-1 than the one that stands (command)", func(_ *Options, s *node.Spec) {
			s.Command = func(node.Place) []string { return node.Own("server", "fast") }
		}},
		{"needs another server-1 than the one that stands (environment)", func(_ *Options, s *node.Spec) { s.Env = []string{"A=1"} }},
		{"needs another server-1 than the one that stands (restart delay)", func(_ *Options, s *node.Spec) { s.RestartDelay = time.Second }},
		{"needs another server-1 than the one that stands (nature)", func(_ *Options, s *node.Spec) { s.Restartable = false }},
		{"of another provider", func(o *Options, _ *node.Spec) { o.Provider = cluster.NewInproc(s.node) }},
		{"of other images", func(o *Options, _ *node.Spec) { o.Images = map[string]string{"redis": "mine"} }},
	} {
		wants, other := o, specs[0]
		x.change(&wants, &other)
		over := &takeover{kept: &KeptServers{cluster: c, provider: o.Provider}, plan: &plan.Plan{Specs: []node.Spec{other, client}}, options: wants}
		err := over.sameServers()
		if (err == nil) != (x.why == "") || err != nil && !strings.Contains(err.Error(), x.why) {
			t.Errorf("%v, want %q", err, x.why)
		}
	}
}

// TestSlowAnswersAreAskedForAgain: silence for a moment is no answer, an error is one, and nobody asks beyond the end.
func TestSlowAnswersAreAskedForAgain(t *testing.T) {
	t.Parallel()
	late := fmt.Errorf("ROLE of redis-1: %w", os.ErrDeadlineExceeded)
	for _, c := range []struct {
		name  string
		said  []error
		asked int
		want  error
	}{
		{"late twice", []error{late, late, nil}, 3, nil},
		{"refused", []error{late, io.ErrUnexpectedEOF}, 2, io.ErrUnexpectedEOF},
		{"silent", slices.Repeat([]error{late}, 100), 5, os.ErrDeadlineExceeded},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		_, err := answered(ctx, func(context.Context) (string, error) {
			if n++; n == 5 {
				cancel()
			}
			return "", c.said[n-1]
		})
		cancel()
		if n != c.asked || !errors.Is(err, c.want) {
			t.Errorf("%s: asked %d times, error %v; want %d and %v", c.name, n, err, c.asked, c.want)
		}
	}
}
