package engine

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/results"
)

// describe fills what is known of the run before it starts.
func (r *run) describe() {
	sc := r.plan.scenario
	e := &r.env
	*e = results.Env{
		Schema: results.EnvSchema, Run: r.id, Scenario: sc.Name, Seed: sc.Run.Seed, Version: r.options.Version,
		Started: r.options.Started.UTC().Format(time.RFC3339Nano), Replay: fmt.Sprintf("%s --seed %d", r.options.Replay, sc.Run.Seed),
		Provider: r.options.Provider.Name(), ProviderReason: r.options.ProviderReason,
		Libraries: r.options.Libraries, Program: r.options.Program, Host: host(), Timings: map[string]int64{},
		Backend: r.plan.backend.Name, Lock: r.plan.lock.Name, TTL: int64(sc.Backend.TTL),
		Token: string(r.plan.lock.Offers.Token), Expires: r.plan.lock.Offers.Expires,
		Workload: sc.Workload.Use, Increments: r.plan.kind.Increments || r.plan.workload == nil && increments(sc.Steps), Directed: len(sc.Steps) > 0 && r.plan.workload == nil,
		Users: sc.Workload.Users*sc.Workload.Clients + len(r.plan.people),
	}
	e.WallClock = r.plan.lock.WallClock(r.plan.topology)
	e.Writes, e.Terms = string(r.plan.kind.Writes), r.plan.terms()
	if len(r.plan.schedule) > 0 && r.options.Drawn != nil {
		e.Drawn = r.options.Drawn(filepath.Join(r.dir, results.FileDrawn))
	}
	if r.plan.workload == nil {
		e.Users = len(r.plan.people)
	}
	for k, name := range r.plan.people {
		if e.People == nil {
			e.People = map[string]string{}
		}
		e.People[name] = r.plan.personNode(k)
	}
	if params, err := json.Marshal(r.plan.topology.Params()); err == nil { // else no client starts
		e.Recovery = int64(r.plan.lock.Bound(sc.Backend.TTL, params))
	}
	if r.plan.resource != nil {
		e.Resource, e.Guard = r.plan.resource.Name, sc.Workload.Resource.Guard
		if r.plan.resource.Replicated {
			e.Replicas = r.plan.namesOf(cluster.Resource)
		}
		e.ResourceNodes = r.plan.namesOf(cluster.Resource)
	}
	e.Host["load_before"] = loadAverage()
}

// describeEnd fills what only the end can tell.
func (r *run) describeEnd() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env.Host["load_after"] = loadAverage()
	if r.cluster != nil {
		r.env.Cluster = r.cluster.Describe
	}
	if first := r.live.firstGrant(); first != 0 {
		r.env.Timings[results.TimeFirstGrant] = (first - r.options.Began) / int64(time.Millisecond)
	}
	if r.wall != nil {
		r.env.ClockSteps = r.wall.steps
	}
	r.env.Finished = true
}

func host() map[string]string {
	h := map[string]string{"os": runtime.GOOS, "arch": runtime.GOARCH, "cores": fmt.Sprint(runtime.NumCPU()), "go": runtime.Version()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h["kernel"] = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		first, _, _ := strings.Cut(string(b), "\n")
		h["memory"] = strings.Join(strings.Fields(strings.TrimPrefix(first, "MemTotal:")), " ")
	}
	return h
}

// loadAverage returns the three load averages of the machine, or "" where it does not tell.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	f := strings.Fields(string(b))
	return strings.Join(f[:min(3, len(f))], " ")
}
