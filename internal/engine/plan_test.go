package engine

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/results"
)

// TestScenariosRefusedBeforeTheStart: scenarios that could not be carried out, or would prove nothing.
func TestScenariosRefusedBeforeTheStart(t *testing.T) {
	t.Parallel()
	with := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(scheduled()) }
	guarded := func(workload, resource string) string {
		return with("use: acquire-release, clients: 1", "use: "+workload+", clients: 1, resource: {"+resource+"}")
	}
	for text, want := range map[string]string{
		with("ttl: 5s", "ttl: 1ms"):                                                                                                "",
		with("ttl: 5s", "ttl: 999us"):                                                                                              "backend.ttl: 999µs is too short for fake: its plain lock needs at least 1ms",
		with("ttl: 5s", "ttl: 5s, cpus: 1"):                                                                                        "server-1 cannot be limited",
		with("use: fake, ttl: 5s", "use: memory, ttl: 5s, cpus: 1"):                                                                "backend: memory has no servers to limit to",
		with("clients: 1,", "clients: 2, users: 32768, own_locks: true,"):                                                          "",
		with("clients: 1,", "clients: 3, users: 21846, own_locks: true,"):                                                          "workload: 65538 locks: a history can name at most 65536",
		guarded("counter", "use: register, guard: fence"):                                                                          "",
		guarded("counter", "use: register, guard: unique"):                                                                         `workload.resource.guard: register has no guard "unique"; it has ask-then-write, cas-owner, `,
		guarded("guarded-set", "use: register, guard: none"):                                                                       "",
		guarded("counter", "use: redis, guard: condition"):                                                                         "workload.resource.guard: condition needs writes that are ",
		guarded("inventory", "use: redis, guard: condition"):                                                                       "",
		guarded("counter", "use: etcd, guard: none"):                                                                               "workload.resource.use: etcd keeps the values in the lock service itself, which must be etcd but is fake",
		guarded("counter", "use: postgres, guard: none"):                                                                           "",
		strings.Replace(guarded("counter", "use: postgres, guard: none"), "use: fake", "use: memory", 1):                           "workload.resource.use: postgres needs its own processes, but backend memory has none",
		strings.Replace(guarded("counter", "use: register, guard: fence"), "use: fake", "use: fake, lock: blank", 1):               "fence needs a fencing token, but lock blank of fake has none",
		strings.Replace(guarded("counter", "use: register, guard: none"), "use: fake", "use: fake, lock: blank", 1):                "",
		with("use: fake", "use: fake, lock: blank", "use: acquire-release", "use: hold-renew"):                                     "workload.use: hold-renew extends its grants, but lock blank of fake cannot be renewed",
		with("use: fake", "use: fake, lock: blank", "clients: 1", "clients: 1, renew: true"):                                       "workload.renew: lock blank of fake cannot be renewed",
		with(`judged: ">=1"`, `own_stall_ms_max: "<1s"`):                                                                           "",
		with(`judged: ">=1"`, `foreign_releases: "<1s"`):                                                                           `expect.foreign_releases: foreign_releases is not a duration: omit the unit of "<1s"`,
		with(`judged: ">=1"`, `foreign_release: "0"`):                                                                              "there is no such count or measure; did you mean foreign_releases? ",
		with(`judged: ">=1"`, `nothing_like_it: "0"`):                                                                              "there is no such count or measure; `lockquake list measures` lists them",
		scheduled("{use: trouble, on: client-1, held: 10ms}"):                                                                      "chaos.0.held: held applies only to the target holder (10ms); this is on client-1",
		directed("{do: read, user: A}"):                                                                                            "",
		strings.Replace(directed("{do: read, user: A}"), "workload: {resource: {use: register, guard: none}}\n", "", 1):            "steps.0.do: read needs a resource; give workload.resource",
		strings.Replace(directed("{do: write, user: A, value: 1}"), "workload: {resource: {use: register, guard: none}}\n", "", 1): "steps.0.do: write needs a resource; give workload.resource",
		strings.Replace(directed("{do: acquire, user: A}"), "workload: {resource: {use: register, guard: none}}\n", "", 1):         "",
	} {
		if _, err := Check((&testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}}).options(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestStepsRefusedBeforeTheStart is rejected before the start, too.
func TestStepsRefusedBeforeTheStart(t *testing.T) {
	t.Parallel()
	faults := map[string]*fakeFault{
		"plain": {}, "counting": {kind: chaos.Kind{Counts: true}}, "servers": {kind: chaos.Kind{Servers: true}},
		"cut": {far: chaos.Names{"server-1"}, ports: [2]chaos.PortName{"", "2379"}}, "nowhere": {far: chaos.Names{"server-9"}},
		"own-port": {far: chaos.Names{"server-1"}, ports: [2]chaos.PortName{"peer"}}, "far-port": {far: chaos.Names{"server-1"}, ports: [2]chaos.PortName{"", "peer"}},
		"register-port": {far: chaos.Names{"server-1"}, ports: [2]chaos.PortName{registerNode}},
	}
	const acquire, bitten, led = "{do: acquire, user: A}", "{await: bitten, of: it}", "{await: led, of: it}"
	for text, want := range map[string]string{
		directed(acquire, "{await: fact, fact: role, node: server-1, is: x}"):                               "",
		directed(acquire, "{await: fact, fact: mood, node: server-1, is: x}"):                               `steps.1.fact: fake has no fact "mood"; it has role, serves`,
		directed(acquire, "{await: fact, fact: role, node: server-9, is: x}"):                               `steps.1.node: there is no node "server-9"`,
		directed(acquire, "{inject: plain, on: A, as: it}", bitten):                                         "steps.2.of: plain counts no packets to await",
		directed(acquire, "{inject: counting, on: A, as: it}", "{inject: plain, on: A, as: other}", bitten): "",
		directed(acquire, "{inject: plain, on: A, as: it}", led):                                            "steps.2.of: it is not on leader: no other node takes the lead after it",
		directed(acquire, "{inject: plain, on: [A, leader], as: it}", led):                                  "",
		directed(acquire, "{inject: cut, on: A}"):                                                           "",
		directed(acquire, "{inject: nowhere, on: A}"):                                                       "server-9",
		directed(acquire, "{inject: own-port, on: A}"):                                                      `client-1 may be at that end of a link, but has no port "peer"`,
		directed(acquire, "{inject: register-port, on: register}"):                                          "",
		directed(acquire, "{inject: own-port, on: register}"):                                               `register may be at that end of a link, but has no port "peer"; it has register`,
		directed(acquire, "{inject: far-port, on: A}"):                                                      `server-1 may be at that end of a link, but has no port "peer"`,
		directed(acquire, "{inject: servers, on: server-1}"):                                                "",
		directed(acquire, "{inject: servers, on: A}"):                                                       "steps.1.on: servers may hit client-1, a client, but applies only to servers",
	} {
		if _, err := Check((&testbed{t: t, faults: faults}).options(text)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestPlanContents: the requested guard, a lock for each user if each has its own, and a client for each user that
// steps name.
func TestPlanContents(t *testing.T) {
	t.Parallel()
	text := strings.Replace(scheduled(), "clients: 1,", "clients: 2, users: 3, own_locks: true, resource: {use: register, guard: fence-writes},", 1)
	p, err := Check((&testbed{t: t}).options(text + "steps:\n  - {do: acquire, user: A, lock: special}\n  - {do: acquire, user: B, lock: special}\n"))
	if err != nil {
		t.Fatal(err)
	}
	locks := []string{"lock-0", "lock-1", "lock-2", "lock-3", "lock-4", "lock-5", "special"}
	if names := []string{"server-1", "client-1", "client-2", "register", "client-3", "client-4"}; p.Guard.Name != "fence-writes" || !slices.Equal(p.Locks, locks) || !slices.Equal(p.Specs.Names(), names) {
		t.Errorf("guard %s, locks %v, nodes %v", p.Guard.Name, p.Locks, p.Specs.Names())
	}
}

// TestRunsThatNeedTheAgent: runs with a fault that needs something of its target.
func TestRunsThatNeedTheAgent(t *testing.T) {
	t.Parallel()
	pauses := chaos.Kind{Needs: []chaos.Capability{chaos.CanPause}}
	for _, c := range []struct {
		text string
		want bool
	}{
		{scheduled(), false},
		{scheduled("{use: plain, on: server-1, at: 1ms}"), false},
		{scheduled("{use: plain, on: server-1, at: 1ms}", "{use: needy, on: server-1, at: 2ms}"), true},
		{directed("{do: acquire, user: A}", "{inject: needy, on: A}"), true},
	} {
		p, err := Check((&testbed{t: t, faults: map[string]*fakeFault{"plain": {}, "needy": {kind: pauses}}}).options(c.text))
		if err != nil || p.NeedsAgent() != c.want {
			t.Errorf("%s: needs the agent, %t: %v", c.text, !c.want, err)
		}
	}
}

// TestAWarmUpIsNotMeasured: the first reading is taken at its end, and the last one at the end of the load.
func TestAWarmUpIsNotMeasured(t *testing.T) {
	t.Parallel()
	for warmup, want := range map[string][]time.Duration{"": {-20 * time.Millisecond, 410 * time.Millisecond}, ", warmup: 100ms": {100 * time.Millisecond, 400 * time.Millisecond}} {
		s := &testbed{t: t}
		got := s.run(t.Context(), strings.Replace(scheduled(), "for: 400ms", "for: 400ms"+warmup, 1)).env
		var at []time.Duration
		for _, r := range got.Readings {
			at = append(at, time.Duration(r.Time-got.Start))
		}
		if !slices.Equal(at, want) {
			t.Errorf("warm-up %q: readings at %v, want %v", warmup, at, want)
		}
		measured := results.Interval{From: got.Start + int64(want[0]), To: got.Start + int64(want[1])}
		if warm := warmup != ""; warm != (got.Measured != nil) || warm && *got.Measured != measured {
			t.Errorf("warm-up %q: measured %+v, want %+v", warmup, got.Measured, measured)
		}
	}
}

// TestRunWithoutAWorkloadReadsNothing: nothing, because the engine's own questions would be most of it.
func TestRunWithoutAWorkloadReadsNothing(t *testing.T) {
	t.Parallel()
	if got := (&testbed{t: t}).run(t.Context(), directed("{do: acquire, user: A}")).env; len(got.Readings) != 0 || got.Measured != nil || !maps.Equal(got.People, map[string]string{"A": "client-1"}) {
		t.Errorf("%+v", got)
	}
}

// TestStartFrames: a client of the workload gets its part of it, a client of the steps none, and the
// resource no access to the service.
func TestStartFrames(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, scripts: map[string]script{"client-2": {begins: func(a *fakeNode) { a.pause(time.Hour) }}}}
	text := strings.Replace(scheduled(), "clients: 1,", "clients: 2, users: 3, resource: {use: register, guard: none},", 1)
	s.wantVerdict(s.run(t.Context(), text+"steps:\n  - {await: elapsed, for: 300ms}\n  - {do: arm, user: A, point: nowhere, action: wait}\n"), results.Pass)
	for name, users := range map[string]int{"client-1": 3, "client-2": 3, "client-3": 0, registerNode: 0} {
		st := s.fake(name).start
		if w := st.Workload; (w != nil) != (users > 0) || w != nil && (w.Users != users || w.Total != 6) {
			t.Errorf("%s is told of the workload %+v", name, w)
		}
		if reaches := len(st.Access) > 0; reaches != (name != registerNode) {
			t.Errorf("%s is told how to reach the service: %t", name, reaches)
		}
	}
}

// TestDrawnScheduleNamesItsSource, if something was drawn and no outcome is known.
func TestDrawnScheduleNamesItsSource(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t, servers: 3, faults: map[string]*fakeFault{"trouble": {}}}
	p, err := Check(s.options(scheduled("{use: trouble, on: one, at: 10ms}", "{use: trouble, on: server-2, at: 20ms}", "{use: trouble, on: one, at: 30ms}")))
	if err != nil {
		t.Fatal(err)
	}
	_, drawn, _ := strings.Cut(string(p.Drawn(map[int]string{2: "not made"})), "chaos:\n")
	var notes []string
	for line := range strings.Lines(drawn) {
		_, note, _ := strings.Cut(strings.TrimSpace(line), " # ")
		notes = append(notes, note)
	}
	if !slices.Equal(notes[:3], []string{"one", "", "not made"}) {
		t.Errorf("%s", drawn)
	}
}
