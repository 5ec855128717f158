package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// record is what is known of the run as a whole, for env.json. Every part of the run adds to it.
type record struct {
	dir string // of the run
	log *slog.Logger

	mu  sync.Mutex
	env results.Env
}

// create makes the run directory with the scenario in it.
func (r *record) create(s scenarios.Scenario) error {
	for _, d := range []string{results.DirHistory, results.DirLogs} {
		if err := os.MkdirAll(filepath.Join(r.dir, d), 0o755); err != nil {
			return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
		}
	}
	for name, text := range map[string][]byte{results.FileScenario: s.Text, results.FileFaults: nil} {
		if err := results.WriteAtomically(filepath.Join(r.dir, name), text); err != nil {
			return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
		}
	}
	return nil
}

// link makes the run the latest of its scenario.
func (r *record) link() {
	link := filepath.Join(filepath.Dir(r.dir), "latest")
	_ = os.Remove(link)
	// A convenience: a file system without links must not stop the run.
	if err := os.Symlink(filepath.Base(r.dir), link); err != nil {
		r.log.Debug("no latest link", "error", err)
	}
}

func (r *record) logDir() string { return filepath.Join(r.dir, results.DirLogs) }

func (r *record) historyDir() string { return filepath.Join(r.dir, results.DirHistory) }

// change alters what is known.
func (r *record) change(how func(*results.Env)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(&r.env)
}

// start returns when the load began, or 0.
func (r *record) start() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.env.Start
}

// timing runs a phase or a part of one, and notes how long it took.
func (r *record) timing(what string, f func() error) error {
	start := clock.Now()
	err := f()
	took := clock.Now() - start
	r.change(func(e *results.Env) { e.Timings[what] += took / int64(time.Millisecond) })
	return err
}

// unknown notes a reason why this run cannot pass.
func (r *record) unknown(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	r.env.Unknown = append(r.env.Unknown, text)
	r.log.Warn("this run cannot pass", "reason", text)
}

// write writes env.json as it is known now.
func (r *record) write() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return results.WriteJSON(filepath.Join(r.dir, results.FileEnv), r.env)
}

// describe tells what is known of a run before it starts.
func describe(o Options, p *plan.Plan, id, dir string) results.Env {
	sc := p.Scenario
	e := results.Env{
		Schema: results.EnvSchema, Run: id, Scenario: sc.Name, Seed: sc.Run.Seed, Version: o.Version,
		Started: o.Started.UTC().Format(time.RFC3339Nano), Replay: fmt.Sprintf("%s --seed %d", o.Replay, sc.Run.Seed),
		Provider: o.Provider.Name(), ProviderReason: o.ProviderReason,
		Libraries: o.Libraries, Program: cmp.Or(p.Programs.String(), o.Program), Host: Host(),
		Timings: map[string]int64{},
		Backend: p.Backend.Name, Lock: p.Lock.Name, TTL: int64(sc.Backend.TTL),
		Token: string(p.Lock.Offers.Token), Expires: p.Lock.Offers.Expires, Tells: p.Lock.Offers.LossSignal,
		NoLock:   p.Lock.Absent,
		Workload: sc.Workload.Use, Increments: p.Kind.Increments || p.Workload == nil && increments(sc.Steps),
		Directed: p.Workload == nil,
		Users:    sc.Workload.Users*sc.Workload.Clients + len(p.StepUsers),
	}
	e.Fair = p.Lock.Offers.Fair
	if p.Backend.Majority != backends.NoMajority {
		e.Majority = &results.Majority{Servers: p.Specs.Of(node.Server), Apart: p.Backend.Majority == backends.ByClients}
	}
	for _, n := range p.Lock.Notes {
		e.Notes = append(e.Notes, results.Note(n))
	}
	e.MustBeZero = o.Catalog.Checkers.MustBeZero()
	e.WallClock = p.Lock.Offers.WallClock
	e.ServerCores = serverCores(p)
	e.Writes, e.Terms = string(p.Kind.Writes), p.Terms()
	if len(p.Schedule) > 0 && o.Drawn != nil {
		e.Drawn = o.Drawn(filepath.Join(dir, results.FileDrawn))
	}
	if p.Workload == nil {
		e.Users = len(p.StepUsers)
	}
	for k, name := range p.StepUsers {
		if e.People == nil {
			e.People = map[string]string{}
		}
		e.People[name] = p.StepUserNode(k)
	}
	if params, err := json.Marshal(p.Topology.Params()); err == nil { // else no client starts
		e.Recovery = int64(p.Lock.Bound(sc.Backend.TTL, params))
	}
	if p.Resource != nil {
		e.Resource, e.Guard = p.Resource.Name, sc.Workload.Resource.Guard
		if p.Resource.Replicated {
			e.Replicas = p.Specs.Of(node.Resource)
		}
		e.ResourceNodes = p.Specs.Of(node.Resource)
	}
	e.Host["load_before"] = loadAverage()
	return e
}

// Host tells what machine this is, as env.json does.
func Host() map[string]string {
	h := map[string]string{
		"os": runtime.GOOS, "arch": runtime.GOARCH, "cores": fmt.Sprint(runtime.NumCPU()),
		"go": runtime.Version(),
	}
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

// serverCores is how much of the machine one server can use at most; 0: all of it.
func serverCores(p *plan.Plan) float64 {
	most := p.Scenario.Backend.Limits.CPUs
	if p.Backend.OneThread && (most == 0 || most > 1) {
		return 1
	}
	return most
}

// machineCPU is the processor time in ns that all programs of this machine have used, by /proc/stat; 0 where there is
// none. What a hypervisor took away counts: it is as little to be had as what others use.
func machineCPU() int64 {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return usedTicks(string(b)) * (1e9 / 100) // the kernel counts in hundredths of a second
}

// usedTicks adds up the first line of /proc/stat, of all cores: user, nice, system, idle, iowait, irq, softirq, steal.
// What guests use is in user already.
func usedTicks(stat string) (sum int64) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	for i, f := range fields[:min(9, len(fields))] {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil && i != 4 && i != 5 {
			sum += n
		}
	}
	return sum
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
