package kept

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
)

// fakeService is a service that can be reset. Its servers' clocks are ahead of this machine's.
type fakeService struct {
	topology.Service
	topology.Resetter
	ahead time.Duration
}

func (fakeService) Facts() map[string]string {
	return map[string]string{chaos.FactClock: "this machine's"}
}

func (s fakeService) Ask(context.Context, string, string) (string, error) {
	return time.Now().Add(s.ahead).UTC().Format("2006-01-02T15:04:05.000000Z07:00"), nil
}

// wait is the main function of every node.
func wait(ctx context.Context, _ []string, _ io.Reader, _ io.Writer) error {
	<-ctx.Done()
	return nil
}

func server() node.Spec {
	return node.Spec{
		Name: "server-1", Role: node.Server, Image: node.SelfProgram, Restartable: true,
		Command: func(node.Place) []string { return node.Own("server", "server-1") },
	}
}

func client() node.Spec {
	return node.Spec{Name: "client-1", Role: node.Client, Command: func(node.Place) []string { return node.Own("client") }}
}

// stand starts nodes.
func stand(t *testing.T, specs ...node.Spec) *cluster.Cluster {
	t.Helper()
	kernel := cluster.FakeKernel{
		Signal:  func(string, string) error { return nil },
		Inspect: func(string) chaos.ProcessState { return chaos.ProcessState{PID: 7, Threads: map[string]int{"S": 1}} },
	}
	c, err := cluster.NewInprocOn(wait, kernel).Open(t.Context(), cluster.Request{
		Run: plan.NewID(), Specs: specs, LogDir: t.TempDir(), Reuse: true,
	})
	if err == nil {
		err = cluster.StartAll(t.Context(), c.Nodes)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func TestDifferences(t *testing.T) {
	t.Parallel()
	then := map[string]string{"a": "1", "b": "2", "gone": "3"}
	if d := differences(map[string]string{"a": "1", "b": "2", "gone": "3"}, then); d != nil {
		t.Errorf("the same differs: %v", d)
	}
	got := differences(map[string]string{"a": "1", "b": "x", "new": "4"}, then)
	want := []string{`b is "x" but was "2"`, `gone is "" but was "3"`, `new is "4" but was ""`}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := differences(map[string]string{"c": "1", "d": "1"}, then); len(got) != 4 || got[3] != "2 more" {
		t.Errorf("five differences are told as %q", got)
	}
}

// TestServersThatAreNotKept goes through what a run can leave behind that no later check would show.
func TestServersThatAreNotKept(t *testing.T) {
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
	fault := func(f chaos.Fault, r history.Fault) func(*Takeover) {
		return func(t *Takeover) {
			r.Name, r.Target = "kill", "redis-1"
			*t.Faults.Add(plan.Due{Inj: plan.Injection{Kind: kill, Fault: f}}, 0).Fault = r
		}
	}
	for _, c := range []struct {
		name, why string
		change    func(*Takeover)
	}{
		{"all is well", "", func(*Takeover) {}},
		{"a crash that was healed", "", fault(keeps, history.Fault{Receipt: bit, Healed: healed})},
		{"a crash without a heal", "was not seen healed", fault(keeps, history.Fault{Receipt: bit})},
		{"a heal that was not seen", "was not seen healed", fault(keeps, history.Fault{Receipt: bit, Healed: &history.Receipt{Status: history.Indeterminate}})},
		{"data that is lost", "took data away", fault(loses, history.Fault{Receipt: bit, Healed: healed})},
		{"a fault that was not made", "", fault(loses, history.Fault{Receipt: history.Receipt{Status: history.NotMade}})},
		{"an interruption", "cut short", func(t *Takeover) { t.Dir.Env.Interrupted = true }},
		{"no recovery", "not seen serving", func(t *Takeover) { t.Dir.Env.Recovered = false }},
		{"a question", "left doubt: a step was not met", func(t *Takeover) { t.Dir.Env.Unknown = []string{"a step was not met"} }},
		{"a preparation", "was prepared for a fault (loop-disk)", func(t *Takeover) { t.Plan.Specs[0].Preparations = []node.Preparation{disk.LoopDisk} }},
		{"a service without reset", "there is no reset for redis", func(t *Takeover) { t.Nodes.Service = nil }},
	} {
		over := &Takeover{
			Plan: &plan.Plan{Specs: []node.Spec{{Name: "redis-1", Role: node.Server}}, Backend: listed.Backend{Backend: backends.Backend{Name: "redis"}}},
			Dir:  &rundir.Dir{Env: results.Env{Recovered: true}}, Nodes: &deployment.Nodes{Service: fakeService{}}, Faults: &rundir.Faults{},
		}
		c.change(over)
		if why := over.unfit(); (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, want %q", c.name, why, c.why)
		}
	}
}

// TestTheClocksOfKeptServersAreRight to within 50 ms of this machine's. An answer may be 5 ms old, and has a
// resolution of a millisecond at best.
func TestTheClocksOfKeptServersAreRight(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		0:                       "server-1 is 0s to 6ms ahead of this machine, over its own protocol",
		1234 * time.Microsecond: "server-1 is 1.2ms to 7.2ms ahead of this machine, over its own protocol",
		50 * time.Millisecond:   "server-1 is 50ms to 56ms ahead of this machine, over its own protocol",
		-56 * time.Millisecond:  "server-1 is -56ms to -50ms ahead of this machine, over its own protocol",
		51 * time.Millisecond:   "the clock of server-1 is 51ms to 57ms ahead of this machine, over its own protocol",
		-57 * time.Millisecond:  "the clock of server-1 is -57ms to -51ms ahead of this machine, over its own protocol",
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &deployment.Nodes{Cluster: stand(t, server()), Service: fakeService{ahead: ahead}}
			said, err := (&prover{nodes: d, clocks: d.Service}).readClocks(t.Context())
			if got := strings.Join(said, "") + fmt.Sprint(err); got != want+"<nil>" && got != want {
				t.Errorf("%v ahead: %q, want %q", ahead, got, want)
			}
		})
	}
}

// TestLinksMustBeAsTheyBegan, and no order may be active.
func TestLinksMustBeAsTheyBegan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		standing, now, was []string
		shared             bool
		want               string
	}{
		{nil, nil, nil, false, "redis-1: nothing<nil>"},
		{nil, []string{"noqueue"}, []string{"noqueue"}, false, "redis-1: [noqueue], as at its start<nil>"},
		{nil, []string{"noqueue"}, []string{"noqueue"}, true, "redis-1: the machine's own network<nil>"},
		{nil, []string{"netem", "noqueue"}, []string{"noqueue"}, false, "the links of redis-1 have [netem, noqueue], but had [noqueue]"},
		{nil, nil, []string{"noqueue"}, true, "the links of redis-1 have [], but had [noqueue]"},
		{[]string{"partition-1"}, nil, nil, false, "the agent has not undone partition-1"},
	} {
		around := cluster.Around{Standing: c.standing}
		around.Links, around.Shared = c.now, c.shared
		said, err := unchanged("redis-1", around, c.was)
		if got := said + fmt.Sprint(err); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestUnobservedLinksProveNothing: the agent that reported them at the start is gone.
func TestUnobservedLinksProveNothing(t *testing.T) {
	t.Parallel()
	c := stand(t, server())
	p := &prover{nodes: &deployment.Nodes{Cluster: c}, start: baseline{links: map[string][]string{"server-1": nil}}}
	if said, err := p.links(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "around server-1: ") {
		t.Errorf("it is shown by %q: %v", said, err)
	}
}

// TestAClockThatIsReadCoarselyIsReadAgain, if the reading cannot decide whether it is right.
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

// TestOnlyServersAreHandedOn: everything else that still runs is ended with its run.
func TestOnlyServersAreHandedOn(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Specs: []node.Spec{server(), client()}}
	c := stand(t, p.Specs...)
	over := &Takeover{
		Kept: &Servers{}, Plan: p, Dir: &rundir.Dir{Env: results.Env{Recovered: true}}, Faults: &rundir.Faults{},
		Nodes: &deployment.Nodes{Plan: p, Cluster: c, Service: fakeService{}},
	}
	if !over.HandOn(t.Context()) || len(over.Kept.Nodes()) != 1 || len(over.Kept.left) != 1 {
		t.Errorf("handed on are %v, left as %v, because %q", over.Kept.Nodes(), over.Kept.left, over.Kept.why)
	}
	for _, n := range c.Nodes {
		if server := n.Role() == node.Server; n.Process.Running() != server {
			t.Errorf("%s runs: %t", n.Name(), n.Process.Running())
		}
	}
}

// TestSameServers goes through the differences that make servers others.
func TestSameServers(t *testing.T) {
	t.Parallel()
	provider := cluster.NewInproc(wait)
	c := stand(t, server())
	for _, x := range []struct {
		why    string
		change func(t *Takeover, s *node.Spec)
	}{
		{"", func(*Takeover, *node.Spec) {}},
		{"needs another server-1 than the kept one (limits)", func(_ *Takeover, s *node.Spec) { s.Limits.CPUs = 1 }},
		{"needs another server-1 than the kept one (preparations)", func(_ *Takeover, s *node.Spec) { s.Preparations = []node.Preparation{"loop-disk"} }},
		{"needs another server-1 than the kept one (image)", func(_ *Takeover, s *node.Spec) { s.Image = "redis" }},
		{"needs another server-1 than the kept one (command)", func(_ *Takeover, s *node.Spec) {
			s.Command = func(node.Place) []string { return node.Own("server", "fast") }
		}},
		{"needs another server-1 than the kept one (environment)", func(_ *Takeover, s *node.Spec) { s.Env = []string{"A=1"} }},
		{"needs another server-1 than the kept one (restart delay)", func(_ *Takeover, s *node.Spec) { s.RestartDelay = time.Second }},
		{"needs another server-1 than the kept one (nature)", func(_ *Takeover, s *node.Spec) { s.Restartable = false }},
		{"another provider", func(t *Takeover, _ *node.Spec) { t.Provider = cluster.NewInproc(wait) }},
		{"other images", func(t *Takeover, _ *node.Spec) { t.Images = map[string]string{"redis": "mine"} }},
	} {
		other := server()
		over := &Takeover{Kept: &Servers{cluster: c, provider: provider}, Provider: provider}
		x.change(over, &other)
		over.Plan = &plan.Plan{Specs: []node.Spec{other, client()}}
		err := over.sameServers()
		if (err == nil) != (x.why == "") || err != nil && !strings.Contains(err.Error(), x.why) {
			t.Errorf("%v, want %q", err, x.why)
		}
	}
}

// TestSlowAnswersAreAskedForAgain: a timeout is not an answer, an error is one, and no question follows the end.
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
