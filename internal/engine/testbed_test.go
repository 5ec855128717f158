package engine

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/memory"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/client"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
	resources "github.com/lockquake/lockquake/workloads/resource/all"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

// testbed runs scenarios in this process on fake nodes, a fake service and fake faults. A test sets what differs from
// the good case: clients get a lock again and again, faults bite and heal, the service serves.
type testbed struct {
	t           *testing.T
	scripts     map[string]script // by node name; a node without one behaves correctly
	realClients bool              // the clients are real ones, on the memory backend; in a bubble they need a hold, or they never wait
	realTime    bool              // time passes as for the machine: needed if nodes use a network
	ahead       func() int64      // ns that the clients' clock is ahead of this machine's; nil: it is the same clock
	lies        bool              // its hello claims the same clock all the same
	mute        bool              // they never say hello
	own         bool              // it claims to be lockquake's own
	takes       []string          // the orders that the hello of its nodes names
	servers     int               // their number; 0: one
	faults      map[string]*fakeFault
	kinds       []chaos.Kind // of real faults
	ready       func() error
	closes      func() error // of the service
	ask         func(node, fact string) (string, error)
	sessions    func() []topology.Session                           // nil: the service has none
	stored      func() topology.Stored                              // nil: the service as a whole cannot be asked
	reset       func() ([]string, error)                            // nil: the service cannot be reset
	settings    map[string]string                                   // of a service that can be reset
	counts      func() int64                                        // requests and connections of its server; nil: not counted
	leads       func(node string, locks []string) ([]string, error) // nil: each server has all locks
	met         []topology.Met                                      // behind its endpoints, if the service is external
	unmet       error
	removes     func() (string, error) // what a run wrote into it, if it is external; nil: not supported
	tune        func(*run)
	progress    func(Progress)
	signalFails func(node, signal string) error // the result of a signal

	provider cluster.Provider // of all runs

	mu      sync.Mutex
	out     string // the folder of runs
	fakes   map[string]*fakeNode
	stopped map[string]bool
}

// finishedRun is the run directory as read back, and the judge's report.
type finishedRun struct {
	dir    string
	err    error // of the run
	env    results.Env
	faults []history.Fault
	report results.Report
	wrong  error    // of the judge
	left   []string // nodes that stay up
}

// run runs a scenario to its end and has it judged. Every reason in env.json must appear in the verdict. Unless it is
// in real time, the run is in a synctest bubble: its time passes only while every goroutine waits, however busy the
// machine is.
func (s *testbed) run(ctx context.Context, text string) (out finishedRun) {
	s.t.Helper()
	s.out = s.t.TempDir()
	if s.realTime {
		return s.runNow(ctx, text)
	}
	outer, _ := s.t, ctx.Done() // which makes its channel
	defer func() { s.t = outer }()
	synctest.Test(outer, func(t *testing.T) {
		s.t = t
		inner, cancel := context.WithCancel(t.Context()) // a wait for a context from outside the bubble would stop its clock
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		out = s.runNow(inner, text)
	})
	return out
}

func (s *testbed) runNow(ctx context.Context, text string) finishedRun {
	s.t.Helper()
	o := s.options(text)
	p, err := Check(o)
	if err != nil {
		s.t.Fatal(err)
	}
	r := newRun(o, p)
	if s.tune != nil {
		s.tune(r)
	}
	if err := r.prepare(); err != nil {
		s.t.Fatal(err)
	}
	out := s.judge(finishedRun{dir: r.record.Path, err: r.do(ctx)})
	for name, a := range s.fakes {
		if a.life.Err() == nil {
			out.left = append(out.left, name)
		}
	}
	return out
}

// options returns the options for a run of a scenario.
func (s *testbed) options(text string) Options {
	s.t.Helper()
	sc, err := scenarios.Parse([]byte(text), "fake.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	if s.provider == nil {
		s.provider = cluster.NewInprocOn(s.node, cluster.FakeKernel{Signal: s.signal, Inspect: s.inspect})
		s.fakes, s.stopped = map[string]*fakeNode{}, map[string]bool{}
	}
	return Options{
		Request: plan.Request{Scenario: sc, Provider: s.provider, Catalog: s.catalog()},
		Out:     cmp.Or(s.out, s.t.TempDir()), Started: time.Now(), Began: clock.Now(), Version: "test", Log: slog.New(noErrors{slog.DiscardHandler, s}), Progress: s.progress,
	}
}

// noErrors is a log that fails the test on any error.
type noErrors struct {
	slog.Handler
	bed *testbed
}

func (h noErrors) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (h noErrors) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h noErrors) Handle(_ context.Context, r slog.Record) error {
	h.bed.t.Errorf("the run's log has an error: %s", r.Message)
	return nil
}

// judge reads what a run left.
func (s *testbed) judge(out finishedRun) finishedRun {
	s.t.Helper()
	var err error
	if out.env, err = results.ReadEnv(out.dir); err != nil {
		s.t.Fatal(err)
	}
	if out.faults, err = results.ReadFaults(out.dir); err != nil {
		s.t.Fatal(err)
	}
	out.report, out.wrong = results.Judge(out.dir, checkers.All())
	if !out.env.Finished {
		s.t.Error("the engine did not come to its end")
	}
	for _, why := range out.env.Unknown {
		if out.wrong == nil && !slices.Contains(out.report.Reasons, why) {
			s.t.Errorf("the verdict does not tell %q: %q", why, out.report.Reasons)
		}
	}
	return out
}

// wantVerdict fails the test unless the verdict is this one and each text is in one of its reasons.
func (s *testbed) wantVerdict(got finishedRun, want results.Verdict, reasons ...string) {
	s.t.Helper()
	if got.err != nil || got.wrong != nil {
		s.t.Fatalf("the run ended with %v, the judge with %v", got.err, got.wrong)
	}
	if got.report.Verdict != want {
		s.t.Errorf("the verdict is %s, want %s: %q", got.report.Verdict, want, got.report.Reasons)
	}
	for _, text := range reasons {
		if text != "" && !slices.ContainsFunc(got.report.Reasons, func(r string) bool { return strings.Contains(r, text) }) {
			s.t.Errorf("no reason tells %q: %q", text, got.report.Reasons)
		}
	}
}

// events returns the events of a kind, in the order of their times.
func (p finishedRun) events(t *testing.T, kind history.Kind) []history.Event {
	t.Helper()
	m, err := history.OpenAll(filepath.Join(p.dir, results.DirHistory))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var out []history.Event
	for {
		var e history.Event
		if _, err := m.Next(&e); err != nil {
			return out
		}
		if e.Kind == kind {
			out = append(out, e)
		}
	}
}

func (s *testbed) catalog() plan.Catalog {
	c := plan.Catalog{Backends: []listed.Backend{memory.Backend(), s.backend()}, Workloads: workloads.All(), Resources: resources.All(), Checkers: checkers.All()}
	c.Resources = append(c.Resources, resource.Kind{Name: "trio", Guards: register.Kinds()[0].Guards, Replicated: true, Specs: trio})
	c.Faults = append(c.Faults, s.kinds...)
	for name, f := range s.faults {
		c.Faults = append(c.Faults, f.listed(name))
	}
	return c
}

// node is the main function of every node.
func (s *testbed) node(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	args = args[1:] // "node"
	switch {
	case args[0] == "server":
		a := &fakeNode{bed: s}
		a.life, a.die = context.WithCancel(ctx)
		s.addFake(args[1], a)
		<-a.life.Done()
		return nil
	case args[0] == "client" && s.realClients:
		return client.Main(ctx, client.Options{
			Backends: []backends.Backend{memory.Backend().Backend}, Workloads: workloads.All(), Resources: resources.All(), In: in, Out: out, InProcess: true,
		})
	case args[0] == registerNode && s.realClients:
		return register.Main(ctx, resource.Options{Listen: args[2], In: in, Out: out, Version: "test"})
	}
	a := &fakeNode{bed: s, conn: wire.NewNodeConn(in, out), dec: wire.NewDecoder(in), out: out, own: s.own && args[0] == "client"}
	return a.main(ctx)
}

// trio returns a resource of three fake replicas.
func trio() []node.Spec {
	var out []node.Spec
	for _, name := range []string{"replica-1", "replica-2", "replica-3"} {
		out = append(out, node.Spec{
			Name: name, Role: node.Resource, Image: node.SelfProgram, Stdio: true,
			Command: func(node.Place) []string { return node.Own("replica") },
		})
	}
	return out
}

// registerNode is the name of the resource's node, and of the subcommand that runs it.
const registerNode = "register"

// addFake registers the fake behind a node's name.
func (s *testbed) addFake(name string, a *fakeNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fakes[name] = a
}

func (s *testbed) fake(name string) *fakeNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fakes[name]
}

func (s *testbed) signal(node, name string) error {
	a := s.fake(node)
	if a == nil {
		return fmt.Errorf("there is no fake %s", node)
	}
	if s.signalFails != nil {
		if err := s.signalFails(node, name); err != nil {
			return err
		}
	}
	if a.script.signalled != nil {
		a.script.signalled(a, name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name {
	case "STOP", "CONT":
		s.stopped[node] = name == "STOP"
	default:
		a.die()
	}
	return nil
}

func (s *testbed) inspect(node string) chaos.ProcessState {
	a := s.fake(node)
	s.mu.Lock()
	defer s.mu.Unlock()
	state := chaos.ProcessState{PID: 7, Threads: map[string]int{"S": 1}, Time: clock.Now()}
	switch {
	case a == nil || a.life.Err() != nil:
		state.PID, state.Threads = 0, nil
	case s.stopped[node]:
		state.Threads = map[string]int{"T": 1}
	}
	return state
}

// backend returns the fake service, with one server unless the test sets more.
func (s *testbed) backend() listed.Backend {
	blank := fakeLock("blank")
	blank.Offers.Token, blank.Offers.Renewal = backends.TokenNone, "none"
	return listed.Backend{
		Backend: backends.Backend{
			Name: "fake", Doc: "A service of a test.",
			Locks: []backends.Lock{fakeLock("plain"), fakeLock("other"), blank},
		},
		Maker: topology.Maker{New: func(topology.Common, func(any) error) (topology.Topology, error) { return fakeService{s}, nil }},
	}
}

func fakeLock(name string) backends.Lock {
	return backends.Lock{
		Name: name, Doc: "A lock of a test.", MinTTL: time.Millisecond,
		Offers:   backends.Offers{Renewal: "call", Token: backends.TokenService, Expires: true, LossSignal: true},
		Recovery: backends.RecoversIn(func(ttl time.Duration) time.Duration { return ttl }),
		Dial: func(context.Context, backends.Access) (backends.Connection, error) {
			return nil, errors.New("the clients of this test are fake")
		},
	}
}

// fakeService is both the topology and its handle.
type fakeService struct{ bed *testbed }

func (v fakeService) Specs() []node.Spec {
	var out []node.Spec
	for i := range max(v.bed.servers, 1) {
		name := fmt.Sprintf("server-%d", i+1)
		out = append(out, node.Spec{
			Name: name, Role: node.Server, Image: node.SelfProgram, Restartable: true,
			Command: func(node.Place) []string { return node.Own("server", name) },
		})
	}
	return out
}

func (fakeService) Params() any { return struct{}{} }

func (v fakeService) Service([]node.Handle) topology.Service {
	switch {
	case v.bed.sessions != nil:
		return withSessions{v}
	case v.bed.stored != nil:
		return withStore{v}
	case v.bed.reset != nil:
		return withReset{v}
	case v.bed.removes != nil:
		return asGuest{v}
	case v.bed.counts != nil:
		return withCounts{v}
	case v.bed.leads != nil:
		return withLeads{v}
	}
	return v
}

func (v fakeService) Identify(context.Context, []node.Handle) ([]topology.Met, error) {
	return v.bed.met, v.bed.unmet
}

// withLeads is a service that spreads its locks.
type withLeads struct{ fakeService }

func (v withLeads) Leads(_ context.Context, node string, locks []string) ([]string, error) {
	return v.bed.leads(node, locks)
}

func (fakeService) Facts() map[string]string {
	return map[string]string{chaos.FactServes: "as the test says", chaos.FactRole: "as the test says"}
}

func (v fakeService) Ask(_ context.Context, node, fact string) (string, error) {
	if v.bed.ask != nil {
		return v.bed.ask(node, fact)
	}
	return "true", nil
}

func (v fakeService) Ready(context.Context) error {
	if v.bed.ready != nil {
		return v.bed.ready()
	}
	return nil
}

func (fakeService) Describe(ctx context.Context) map[string]string {
	if ctx.Err() != nil {
		return nil
	}
	return map[string]string{"version": "of a test"}
}

func (v fakeService) Close() error {
	if v.bed.closes != nil {
		return v.bed.closes()
	}
	return nil
}

// withReset is a fake service that can be reset, with the clock of this machine or of the clients.
type withReset struct{ fakeService }

func (v withReset) Facts() map[string]string {
	return map[string]string{chaos.FactClock: "this machine's"}
}

func (v withReset) Ask(ctx context.Context, node, fact string) (string, error) {
	if fact == chaos.FactClock {
		now := time.Now()
		if v.bed.ahead != nil {
			now = now.Add(time.Duration(v.bed.ahead()))
		}
		return now.UTC().Format("2006-01-02T15:04:05.000000Z07:00"), nil
	}
	return v.fakeService.Ask(ctx, node, fact)
}

func (v withReset) Reset(context.Context) ([]string, error)             { return v.bed.reset() }
func (v withReset) Settings(context.Context) (map[string]string, error) { return v.bed.settings, nil }

// withCounts is a fake service whose server counts requests and connections.
type withCounts struct{ fakeService }

func (v withCounts) Requests(context.Context) map[string]int64 {
	return map[string]int64{"server-1": v.bed.counts()}
}

func (v withCounts) Connections(context.Context) map[string]int64 {
	return map[string]int64{"server-1": v.bed.counts()}
}

// asGuest is an external fake service that is empty before the run.
type asGuest struct{ fakeService }

func (asGuest) Vacant(context.Context) (string, error)             { return "all but one key", nil }
func (v asGuest) Remove(context.Context, []string) (string, error) { return v.bed.removes() }

// withStore is a fake service that can be asked as a whole.
type withStore struct{ fakeService }

func (v withStore) Stored(context.Context, string) (topology.Stored, error) {
	return v.bed.stored(), nil
}

// withSessions is a fake service whose grants last as long as a session.
type withSessions struct{ fakeService }

func (v withSessions) Sessions(context.Context) ([]topology.Session, error) {
	return v.bed.sessions(), nil
}

// fakeFault is a fault that bites and heals unless the test says otherwise.
type fakeFault struct {
	kind   chaos.Kind
	during func(ctx context.Context) // before it looks
	inject func(chaos.Scope) (history.Receipt, error)
	heal   func() (history.Receipt, error)
	moment bool              // it ends by itself
	far    chaos.Names       // the other ends of its links; nil: it has no links
	ports  [2]chaos.PortName // at its own ends, and at the others

	mu    sync.Mutex
	heals int
}

func (f *fakeFault) listed(name string) chaos.Kind {
	k := f.kind
	k.Name, k.Doc, k.Lasting = name, "A fault of a test.", !f.moment
	k.New = func(func(any) error) (chaos.Fault, error) {
		if f.far != nil {
			return fakeLinkFault{f}, nil
		}
		return f, nil
	}
	return k
}

// fakeLinkFault is a fakeFault of links.
type fakeLinkFault struct{ *fakeFault }

func (f fakeLinkFault) Far() chaos.Names                 { return f.far }
func (f fakeLinkFault) Ports() (own, far chaos.PortName) { return f.ports[0], f.ports[1] }

// Inject does what the test says.
func (f *fakeFault) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	if f.during != nil {
		f.during(ctx)
	}
	receipt, err := history.Receipt{Status: history.Installed, Evidence: "seen", Time: clock.Now()}, error(nil)
	if f.inject != nil {
		receipt, err = f.inject(s)
	}
	if ctx.Err() != nil {
		return f.undo, history.Receipt{Status: history.NotInstalled, Evidence: "cut short"}, ctx.Err()
	}
	return f.undo, receipt, err
}

func (f *fakeFault) undo(ctx context.Context) (history.Receipt, error) {
	_, done := clock.Act(ctx)
	defer done()
	f.mu.Lock()
	f.heals++
	f.mu.Unlock()
	time.Sleep(time.Millisecond) // so that its end is not its beginning
	if f.heal != nil {
		return f.heal()
	}
	return history.Receipt{Status: history.Installed, Evidence: "seen undone", Time: clock.Now()}, nil
}

func (f *fakeFault) healed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heals
}

// answers returns a receipt and an error for an inject or a heal.
func answers(status history.ReceiptStatus, err error) func() (history.Receipt, error) {
	return func() (history.Receipt, error) {
		return history.Receipt{Status: status, Evidence: "as the test says"}, err
	}
}

func injects(status history.ReceiptStatus, err error) func(chaos.Scope) (history.Receipt, error) {
	return func(chaos.Scope) (history.Receipt, error) { return answers(status, err)() }
}

// scheduled returns a scenario with a workload and a schedule: the lines are entries of chaos.
func scheduled(entries ...string) string {
	text := `name: fake
claim: a test
backend: {use: fake, ttl: 5s}
workload: {use: acquire-release, clients: 1, timeout: 100ms}
run: {for: 400ms, seed: 1, settle: 10ms}
expect: {double_grants: "0", judged: ">=1"}
`
	if len(entries) > 0 {
		text += "chaos:\n  - " + strings.Join(entries, "\n  - ") + "\n"
	}
	return text
}

// directed returns a scenario of steps alone.
func directed(steps ...string) string {
	return `name: fake
claim: a test
backend: {use: fake, ttl: 5s}
workload: {resource: {use: register, guard: none}}
run: {settle: 10ms}
expect: {double_grants: "0", judged: ">=0"}
steps:
  - ` + strings.Join(steps, "\n  - ") + "\n"
}

// TestMain allows many tests in parallel: they do little but wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	clock.Simulate()
	wire.OutliveReader() // called here because it starts a goroutine, which must not be in a bubble
	os.Exit(m.Run())
}
