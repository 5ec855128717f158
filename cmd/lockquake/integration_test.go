//go:build integration

package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/results/report/scene"
	"github.com/lockquake/lockquake/scenarios"
)

// program returns the built program, which users and nodes run.
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

// process is a running lockquake.
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

// wait waits for the end and returns the exit code, or -1 after a signal.
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
	list := p.reports(t)
	if len(list) != 1 {
		t.Fatalf("standard output is not one verdict\n%s\n%s", p.stdout.String(), p.stderr.String())
	}
	return list[0]
}

// reports reads the verdicts of several runs.
func (p *process) reports(t *testing.T) []results.Report {
	t.Helper()
	var out []results.Report
	for d := json.NewDecoder(strings.NewReader(p.stdout.String())); d.More(); {
		var r results.Report
		if err := d.Decode(&r); err != nil {
			t.Fatalf("standard output is no verdicts: %v\n%s\n%s", err, p.stdout.String(), p.stderr.String())
		}
		out = append(out, r)
	}
	return out
}

// story is a scenario whose own expectations its run must meet.
type story struct{ name, provider string }

// picked runs in every test run: one story for each topology, one with packets in flight, and one healthy run.
var picked = []story{
	{"etcd-healthy", "docker"},
	{"etcd-holder-pause-fenced", "docker"},
	{"late-packet-etcd", "local"},
	{"redis-restart-amnesia", "local"},
	{"sentinel-lost-lock", "docker"},
	{"cluster-lost-lock", "docker"},
	{"redlock-clock-jump", "docker"},
	{"zookeeper-session-expiry", "docker"},
	{"postgres-session-end", "local"},
}

// everyStory returns all stories and their twins on containers, and the picked ones of other providers.
func everyStory() []story {
	var out []story
	for _, l := range scenarios.Names() {
		if strings.HasPrefix(l.File, "stories/") || strings.HasPrefix(l.File, "healthy/") {
			out = append(out, story{l.Name, "docker"})
		}
	}
	for _, s := range picked {
		if s.provider != "docker" {
			out = append(out, s)
		}
	}
	return out
}

// shortened lists stories that are cut short here. The soak, which pools whole runs, finds what jepsen-etcd-lock
// loses.
var shortened = map[string][]string{"jepsen-etcd-lock": {"--set", "run.for=30s", "--set", "expect.judged=>=5"}}

// everything reports whether `make test-all` runs.
func everything() bool { return os.Getenv("LOCKQUAKE_TEST_ALL") != "" }

// leftToAll skips what another test of `make test` shows already.
func leftToAll(t *testing.T, shown string) {
	t.Helper()
	if !everything() {
		t.Skipf("left to make test-all: %s", shown)
	}
}

// sitting is a set of stories that one lockquake runs in sequence, on servers that it keeps.
type sitting struct {
	provider string
	names    []string
	options  []string
}

// sittings groups stories by provider and backend.
func sittings(t *testing.T, list []story) map[string]*sitting {
	t.Helper()
	out := map[string]*sitting{}
	for _, s := range list {
		sc := found(t, s.name)
		key := sc.Backend.Use + "@" + s.provider
		if shortened[s.name] != nil {
			key = s.name + "@" + s.provider
		}
		if out[key] == nil {
			out[key] = &sitting{provider: s.provider, options: shortened[s.name]}
		}
		out[key].names = append(out[key].names, s.name)
	}
	return out
}

// TestStories runs the picked stories unchanged, or every story and twin for `make test-all`.
func TestStories(t *testing.T) {
	t.Parallel()
	list := picked
	if everything() {
		list = everyStory()
	}
	for key, s := range sittings(t, list) {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			p := begin(t, slices.Concat([]string{"run", "--provider", s.provider, "--format", "json"}, s.names, s.options)...)
			code := p.wait(t)
			got := p.reports(t)
			wantPassed(t, code, got)
			if len(got) != len(s.names) {
				t.Fatalf("%d verdicts of %v\n%s", len(got), s.names, p.stderr.String())
			}
			for i, r := range got {
				t.Logf("%s: %s, kept %t; %s", r.Scenario, r.Verdict, r.Kept, r.Fresh)
				provider := s.provider
				if found(t, s.names[i]).Backend.Use == "memory" {
					provider = "inproc" // whatever the others run on
				}
				if r.Schema != results.ReportSchema || r.Scenario != s.names[i] || r.Provider != provider {
					t.Errorf("%s on %s, schema %s", r.Scenario, r.Provider, r.Schema)
				}
				checkFaults(t, r)
				checkReasons(t, r)
				checkAgain(t, r)
				for _, f := range []string{results.FileVerdict, results.FileReport, results.FileEnv, results.FileFaults, results.FileScenario} {
					if _, err := os.Stat(filepath.Join(r.RunDir, f)); err != nil {
						t.Error(err)
					}
				}
			}
			gone(t, p)
		})
	}
}

// TestControls runs every broken lock. Its scenario passes if the checker it is meant for finds the violation.
func TestControls(t *testing.T) {
	t.Parallel()
	all, err := scenarios.Load("controls/*")
	if err != nil {
		t.Fatal(err)
	}
	var tests patient
	for third := range slices.Chunk(all, (len(all)+2)/3) {
		tests.add(third[0].Name, func(t *testing.T) {
			args := []string{"run", "--format", "json"}
			for _, s := range third {
				args = append(args, s.Name)
			}
			p := begin(t, args...)
			code := p.wait(t)
			got := p.reports(t)
			if wantPassed(t, code, got); len(got) != len(third) {
				t.Errorf("%d verdicts of %d controls\n%s", len(got), len(third), p.stderr.String())
			}
		})
	}
	tests.run(t)
}

// mostAway is how long tests tolerate that other work has all cores, in ms.
const mostAway = 200

// wantPassed demands that all runs of a command passed. A run may be unknown if a process of lockquake stood still for
// longer than mostAway: it is logged, and proves nothing.
func wantPassed(t *testing.T, code int, runs []results.Report) {
	t.Helper()
	want := cli.CodeMet
	for _, r := range runs {
		away := r.Measures["own_stall_ms_max"]
		switch {
		case r.Verdict == results.Pass:
		case r.Verdict == results.Unknown && away != nil && *away > mostAway:
			want = cli.CodeInconclusive
			t.Logf("%s is not looked at: the machine stood still for %.0f ms: %v", r.Scenario, *away, r.Reasons)
		default:
			t.Errorf("verdict %s of %s: %v", r.Verdict, r.Scenario, r.Reasons)
		}
	}
	if code != want && !t.Failed() {
		t.Errorf("exit code %d, want %d", code, want)
	}
}

// patient collects tests that mostly wait. run runs four of them at a time, in the slot of one parallel test.
type patient []struct {
	name string
	test func(*testing.T)
}

func (p *patient) add(name string, test func(*testing.T)) {
	*p = append(*p, struct {
		name string
		test func(*testing.T)
	}{name, test})
}

func (p *patient) run(t *testing.T) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(4)
	for _, one := range *p {
		all.Go(func() error { t.Run(one.name, one.test); return nil })
	}
	_ = all.Wait() // they never return an error
}

// found returns an embedded scenario.
func found(t *testing.T, name string) scenarios.Scenario {
	t.Helper()
	list, err := scenarios.Load(name)
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %d scenarios, %v", name, len(list), err)
	}
	return list[0]
}

// Two cores can run two of these tests next to those of another package. With three, there was a minute in which no
// container started within 15 s.
func init() { sideBySide = "2" }

// checkFaults demands that a fault of the scenario acted, and that each has evidence.
func checkFaults(t *testing.T, r results.Report) {
	t.Helper()
	s := found(t, r.Scenario)
	want := len(s.Chaos) > 0 || slices.ContainsFunc(s.Steps, func(s scenarios.Step) bool { return s.Inject != "" })
	bit := false
	for _, f := range r.Faults {
		if f.Receipt.Evidence == "" || f.Target == "" {
			t.Errorf("fault %s has no evidence or no target: %+v", f.Name, f)
		}
		bit = bit || f.Receipt.Status == history.Installed
	}
	if bit != want {
		t.Errorf("of %d faults one bit: %t, should be %t", len(r.Faults), bit, want)
	}
}

// checkReasons demands that each refusal in the picture has a recorded reason.
func checkReasons(t *testing.T, r results.Report) {
	t.Helper()
	svg, err := os.ReadFile(filepath.Join(r.RunDir, report.FilePicture))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || strings.Contains(string(svg), scene.NoReason) {
		t.Errorf("the picture tells of a refusal of which nobody recorded why (%v)", err)
	}
}

// checkAgain judges the directory again and demands the same counts.
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

// TestFenceWithoutTokenStartsNothing checks the refusal on a machine with a container engine.
func TestFenceWithoutTokenStartsNothing(t *testing.T) {
	t.Parallel()
	p := begin(t, "run", "redis-holder-pause", "--set", "workload.resource.guard=fence")
	if code := p.wait(t); code != cli.CodeUsage {
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

// TestEngineThatIsNotThere: a missing engine is reported, and auto does without it.
func TestEngineThatIsNotThere(t *testing.T) {
	const nowhere = "DOCKER_HOST=unix:///nonexistent/docker.sock"
	t.Parallel()
	p := beginProgram(t, "env", nowhere, program(t), "run", "etcd-healthy", "--provider", "docker")
	if code := p.wait(t); code != cli.CodeMissing {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	if !strings.Contains(p.stderr.String(), "--provider local") {
		t.Errorf("the message does not say what would help: %q", p.stderr.String())
	}
	p = beginProgram(t, "env", nowhere, program(t), "run", "etcd-healthy", "--dry-run")
	if code := p.wait(t); code != cli.CodeMet || !strings.Contains(p.stdout.String(), "provider local: ") {
		t.Errorf("auto: exit code %d, %s%s", code, p.stdout.String(), p.stderr.String())
	}
}
