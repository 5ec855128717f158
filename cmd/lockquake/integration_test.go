//go:build integration

package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// program returns the built program: what users run, and what runs on the nodes.
func program(t *testing.T) string {
	t.Helper()
	bin := os.Getenv("LOCKQUAKE_BIN")
	if bin == "" {
		bin = "../../build/lockquake"
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v; run `make build`, or set LOCKQUAKE_BIN", err)
	}
	return bin
}

// process is a lockquake under way.
type process struct {
	cmd    *exec.Cmd
	dir    string // its working directory
	stdout log
	stderr log
}

// begin starts the program in a directory of its own.
func begin(t *testing.T, args ...string) *process {
	t.Helper()
	return beginProgram(t, program(t), args...)
}

func beginProgram(t *testing.T, path string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(path, args...), dir: t.TempDir()}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, &p.stdout, &p.stderr
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // the test ended early
			_ = p.cmd.Process.Signal(os.Interrupt)
			_ = p.cmd.Wait()
		}
	})
	return p
}

// wait waits for the end and returns the exit code; -1 is death by a signal.
func (p *process) wait(t *testing.T) int {
	t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", p.cmd.Args, err, p.stderr.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// report reads the verdict that `run --format json` printed.
func (p *process) report(t *testing.T) results.Report {
	t.Helper()
	var r results.Report
	if err := json.Unmarshal([]byte(p.stdout.String()), &r); err != nil {
		t.Fatalf("standard output is not one verdict: %v\n%s\n%s", err, p.stdout.String(), p.stderr.String())
	}
	return r
}

// must demands that a count was judged, and holds it against a range; most < 0 is no upper end.
func must(t *testing.T, r results.Report, count string, least, most int64) {
	t.Helper()
	v, ok := r.Counts[count]
	switch {
	case !ok:
		t.Errorf("counts has no %s: %v", count, keys(r.Counts))
	case v == nil:
		t.Errorf("%s was not judged", count)
	case *v < least || most >= 0 && *v > most:
		t.Errorf("%s is %d, should be %d to %d", count, *v, least, most)
	}
}

func keys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

const anyNumber = -1

// story is a scenario with what its run has to show.
type story struct {
	name     string
	provider string
	faults   bool
	counts   map[string][2]int64
}

var zero = [2]int64{0, 0}

var some = [2]int64{1, anyNumber}

var stories = []story{
	{"etcd-holder-pause", "docker", true, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": some, "stale_writes": some, "token_regressions": zero,
	}},
	{"etcd-holder-pause-fenced", "docker", true, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": some, "stale_writes": zero, "fence_saves": some, "lost_updates": zero,
	}},
	{"redis-holder-pause", "docker", true, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": some, "stale_writes": some,
	}},
	{"redis-restart-amnesia", "docker", true, map[string][2]int64{"double_grants": some, "stale_writes": some}},
	{"etcd-healthy", "docker", false, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": zero, "stale_writes": zero, "lost_updates": zero,
		"token_regressions": zero, "foreign_releases": zero, "stuck_locks": zero,
	}},
	{"redis-healthy", "docker", false, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": zero, "stale_writes": zero, "lost_updates": zero,
		"foreign_releases": zero, "stuck_locks": zero,
	}},
	{"etcd-holder-pause", "local", true, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": some, "stale_writes": some,
	}},
	{"etcd-lease-expiry", "docker", true, map[string][2]int64{"double_grants": zero, "stale_writes": zero}},
	{"late-packet-etcd", "docker", true, map[string][2]int64{"double_grants": zero, "stale_writes": some}},
	{"late-packet-etcd-fenced", "docker", true, map[string][2]int64{"stale_writes": zero, "fence_saves": some}},
	{"etcd-lease-expiry", "local", true, map[string][2]int64{"double_grants": zero, "stale_writes": zero}},
	{"late-packet-etcd", "local", true, map[string][2]int64{"double_grants": zero, "stale_writes": some}},
	{"redis-restart-amnesia", "local", true, map[string][2]int64{"double_grants": some, "stale_writes": some}},
	{"postgres-holder-pause", "docker", true, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": some, "stale_writes": some, "token_regressions": zero,
	}},
	{"random-token-cas", "docker", false, map[string][2]int64{"double_grants": zero, "stale_writes": some}},
	{"check-then-write", "docker", true, map[string][2]int64{"double_grants": zero, "stale_writes": some}},
	{"fence-writes-only", "docker", true, map[string][2]int64{"stale_writes": some, "lost_updates": some}},
	{"session-check", "docker", true, map[string][2]int64{"double_grants": zero, "stale_writes": some}},
	{"chubby-lock-delay", "docker", true, map[string][2]int64{"double_grants": zero, "stale_writes": zero}},
	{"chubby-sequencer", "docker", true, map[string][2]int64{"stale_writes": zero, "fence_saves": some}},
	{"setnx-crash", "docker", false, map[string][2]int64{"stuck_locks": some}},
	{"setnx-expire-crash", "docker", false, map[string][2]int64{"stuck_locks": some}},
	{"del-cascade", "docker", false, map[string][2]int64{"double_grants": some, "foreign_releases": some}},
	{"etcd-slow-network", "local", true, map[string][2]int64{"double_grants": zero, "stale_writes": zero, "lost_updates": zero}},
	{"incr-token-failover", "docker", true, map[string][2]int64{"token_regressions": some, "stale_writes": some}},
	{"flash-sale", "docker", false, map[string][2]int64{"units_oversold": some, "stale_writes": some}},
	{"flash-sale-fenced", "docker", false, map[string][2]int64{"units_oversold": zero, "fence_saves": some}},
	{"double-booking", "docker", false, map[string][2]int64{"double_bookings": zero, "overlapping_holds": some}},
	{"postgres-session-end", "local", true, map[string][2]int64{
		"double_grants": zero, "overlapping_holds": some, "stale_writes": some,
	}},
	{"jepsen-etcd-lock", "docker", true, map[string][2]int64{"lost_elements": {0, anyNumber}}},
}

// shortened are stories of which a part is run here. What jepsen-etcd-lock loses is for the soak, which pools whole runs.
var shortened = map[string][]string{"jepsen-etcd-lock": {"--set", "run.for=30s", "--set", "expect.judged=>=5"}}

// allStories are the stories above, and with containers each other one that there is, which its own expectations judge.
func allStories(t *testing.T) []story {
	t.Helper()
	out := slices.Clone(stories)
	for _, l := range scenarios.Names() {
		if !strings.HasPrefix(l.File, "stories/") || l.Path+".yaml" != l.File ||
			slices.ContainsFunc(out, func(s story) bool { return s.name == l.Name && s.provider == "docker" }) {
			continue
		}
		found, err := scenarios.Load(l.Name)
		if err != nil {
			t.Fatal(err)
		}
		s := found[0]
		faults := len(s.Chaos) > 0 || slices.ContainsFunc(s.Steps, func(st scenarios.Step) bool { return st.Inject != "" })
		out = append(out, story{name: l.Name, provider: "docker", faults: faults})
	}
	return out
}

// TestStories runs the main form of each story once, as it comes out of the box.
func TestStories(t *testing.T) {
	for _, s := range allStories(t) {
		t.Run(s.name+"@"+s.provider, func(t *testing.T) {
			p := begin(t, append([]string{"run", s.name, "--provider", s.provider, "--format", "json"}, shortened[s.name]...)...)
			if code := p.wait(t); code != codeMet {
				t.Errorf("exit code %d\n%s", code, p.stderr.String())
			}
			r := p.report(t)
			if r.Schema != results.ReportSchema || r.Scenario != s.name || r.Verdict != results.Pass || r.Provider != s.provider {
				t.Errorf("verdict %s of %s on %s, schema %s: %v", r.Verdict, r.Scenario, r.Provider, r.Schema, r.Reasons)
			}
			for name, limits := range s.counts {
				must(t, r, name, limits[0], limits[1])
			}
			checkFaults(t, r, s.faults)
			checkAgain(t, r)
			for _, f := range []string{results.FileVerdict, results.FileReport, results.FileEnv, results.FileFaults, results.FileScenario} {
				if _, err := os.Stat(filepath.Join(r.RunDir, f)); err != nil {
					t.Error(err)
				}
			}
			gone(t, p)
		})
	}
}

// checkFaults demands faults that bit, with evidence, or none at all.
func checkFaults(t *testing.T, r results.Report, want bool) {
	t.Helper()
	if want == (len(r.Faults) == 0) {
		t.Errorf("%d faults", len(r.Faults))
	}
	bit := 0
	for _, f := range r.Faults {
		if f.Receipt.Evidence == "" || f.Target == "" {
			t.Errorf("fault %s has no evidence or no target: %+v", f.Name, f)
		}
		if f.Receipt.Status == "installed" {
			bit++
		}
	}
	if want && bit == 0 {
		t.Error("no fault bit")
	}
}

// checkAgain demands the same counts from a judgement of the directory.
func checkAgain(t *testing.T, r results.Report) {
	t.Helper()
	p := begin(t, "check", r.RunDir, "--format", "json")
	p.wait(t)
	again := p.report(t)
	if again.Verdict != r.Verdict || again.Judged != r.Judged {
		t.Errorf("judged again it is %s with %+v, was %s with %+v", again.Verdict, again.Judged, r.Verdict, r.Judged)
	}
	for name, v := range r.Counts {
		w := again.Counts[name]
		if (v == nil) != (w == nil) || v != nil && *v != *w {
			t.Errorf("judged again, %s differs", name)
		}
	}
}

// TestFenceWithoutTokenStartsNothing checks the refusal with an engine at hand.
func TestFenceWithoutTokenStartsNothing(t *testing.T) {
	p := begin(t, "run", "redis-holder-pause", "--set", "workload.resource.guard=fence")
	if code := p.wait(t); code != codeUsage {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(p.stderr.String(), "fence needs a fencing token") {
		t.Errorf("message is %q", p.stderr.String())
	}
	gone(t, p)
	if entries, err := os.ReadDir(p.dir); err != nil || len(entries) > 0 {
		t.Errorf("something was written: %v, %v", entries, err)
	}
}

// TestEngineThatIsNotThere checks that a missing engine is said, and that auto goes on without it.
func TestEngineThatIsNotThere(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	p := begin(t, "run", "etcd-healthy", "--provider", "docker")
	if code := p.wait(t); code != codeMissing {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	if !strings.Contains(p.stderr.String(), "--provider local") {
		t.Errorf("the message does not say what would help: %q", p.stderr.String())
	}
	p = begin(t, "run", "etcd-healthy", "--dry-run")
	if code := p.wait(t); code != codeMet || !strings.Contains(p.stdout.String(), "provider local: ") {
		t.Errorf("auto: exit code %d, %s%s", code, p.stdout.String(), p.stderr.String())
	}
}
