package engine

import (
	"maps"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/results"
)

// TestEnvironmentIsWrittenBeforeTheStart of a run is in env.json.
func TestEnvironmentIsWrittenBeforeTheStart(t *testing.T) {
	t.Parallel()
	many := strings.Replace(scheduled(), "clients: 1,", "clients: 2, users: 3,", 1)
	write := func(what string) string { return "{do: write, user: A, " + what + "}" }
	for _, c := range []struct {
		name, text string
		want       results.Env
	}{
		{"a workload", many, results.Env{Users: 6}},
		{"a schedule", scheduled(entry), results.Env{Users: 1, Drawn: "run dir/drawn.yaml"}},
		{"a workload that counts up", strings.Replace(many, "use: acquire-release,", "use: counter, resource: {use: register, guard: none},", 1), results.Env{Users: 6, Increments: true}},
		{"steps that count up", directed(write("plus: 1")), results.Env{Users: 1, Directed: true, Increments: true, People: map[string]string{"A": "client-1"}}},
		{"steps that write", directed(write("value: 1")), results.Env{Users: 1, Directed: true, People: map[string]string{"A": "client-1"}}},
		{
			"steps beside a workload", strings.Replace(many, "clients: 2,", "clients: 2, resource: {use: register, guard: none},", 1) +
				"steps:\n  - " + write("plus: 1") + "\n  - {do: acquire, user: B}\n",
			results.Env{Users: 8, People: map[string]string{"A": "client-3", "B": "client-4"}},
		},
	} {
		s := &testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}}
		o := s.options(c.text)
		o.Drawn = func(file string) string { return "run " + filepath.ToSlash(file) }
		p, err := Check(o)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, want := describe(o, p, "1", "dir"), c.want
		if got.Users != want.Users || got.Increments != want.Increments || got.Directed != want.Directed || got.Drawn != want.Drawn || !maps.Equal(got.People, want.People) {
			t.Errorf("%s: %d users, counts up %t, directed %t, drawn %q, people %v; want %+v", c.name, got.Users, got.Increments, got.Directed, got.Drawn, got.People, want)
		}
		if got.Recovery != int64(5*time.Second) {
			t.Errorf("%s: the recovery bound is %v, want the TTL", c.name, time.Duration(got.Recovery))
		}
		for _, what := range []string{"kernel", "memory", "load_before"} {
			if got.Host[what] == "" && runtime.GOOS == "linux" {
				t.Errorf("%s: nothing is said of this machine's %s", c.name, what)
			}
		}
	}
}

// TestQuorumIsRecorded, so that it can be judged why there was none.
func TestQuorumIsRecorded(t *testing.T) {
	t.Parallel()
	for majority, want := range map[backends.Majority]*results.Majority{
		backends.NoMajority: nil,
		backends.AmongThem:  {Servers: []string{"server-1"}},
		backends.ByClients:  {Servers: []string{"server-1"}, Apart: true},
	} {
		o := (&testbed{t: t, faults: map[string]*fakeFault{"trouble": {}}}).options(scheduled())
		p, err := Check(o)
		if err != nil {
			t.Fatal(err)
		}
		p.Backend.Majority, p.Lock.Offers.Fair = majority, true
		if got := describe(o, p, "1", "dir"); !reflect.DeepEqual(got.Majority, want) || !got.Fair {
			t.Errorf("%d: %+v, fair %t; want %+v", majority, got.Majority, got.Fair, want)
		}
	}
}

// TestPhasesAreTimed in whole milliseconds.
func TestPhasesAreTimed(t *testing.T) {
	t.Parallel()
	s := &testbed{t: t}
	got := s.run(t.Context(), strings.Replace(scheduled(), "settle: 10ms", "settle: 70ms", 1)).env.Timings
	if load, settle := got[results.TimeLoad], got[results.TimeSettle]; load != 420 || settle != 70 { // the workload is started after 20 ms
		t.Errorf("the load took %d ms, settling %d ms; want 420 and 70", load, settle)
	}
}

// TestTheFirstGrantIsTimed from the request for the run: before the call of Run, if its caller says so.
func TestTheFirstGrantIsTimed(t *testing.T) {
	t.Parallel()
	for _, before := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			o := (&testbed{t: t}).options(scheduled())
			if o.Began = 0; before > 0 {
				o.Began = clock.Now() - int64(before)
			}
			dir, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			env, err := results.ReadEnv(dir)
			if took := time.Duration(env.Timings[results.TimeFirstGrant]) * time.Millisecond; err != nil || took < before || took > before+time.Second {
				t.Errorf("asked for %v before: the first grant came after %v (%v)", before, took, err)
			}
		})
	}
}

// TestStepsComeIntoTheEnvironment writes what was watched into env.json.
func TestStepsComeIntoTheEnvironment(t *testing.T) {
	t.Parallel()
	r := &run{live: live.New(), nodes: &deployment.Nodes{}, record: &rundir.Dir{Env: results.Env{Host: map[string]string{}, Timings: map[string]int64{}}}}
	r.describeEnd() // it never reached the load
	r.wall = &watch.WallClock{Steps: []results.ClockStep{{Time: 1, By: 2}}}
	r.describeEnd()
	if !slices.Equal(r.record.Env.ClockSteps, r.wall.Steps) {
		t.Errorf("env.json has %+v", r.record.Env.ClockSteps)
	}
}
