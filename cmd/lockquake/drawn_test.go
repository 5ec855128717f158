package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// generous claims to support everything and starts nothing: what is drawn must not depend on the machine.
type generous struct{}

func (generous) Name() string                             { return "generous" }
func (generous) Offers(chaos.Capability, node.Role) error { return nil }
func (generous) Prepares(node.Preparation, node.Spec, string) error {
	return nil
}

func (generous) Open(context.Context, cluster.Request) (*cluster.Cluster, error) {
	return nil, errors.New("it starts nothing")
}

// dryRun reads a scenario, and returns its schedule from --dry-run and the drawn file.
func dryRun(t *testing.T, s scenarios.Scenario) (schedule []map[string]any, drawn []byte) {
	t.Helper()
	p, err := engine.Check(engine.Options{Request: engine.Request{Scenario: s, Provider: generous{}, Catalog: nodes.Catalog()}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var out struct{ Schedule []map[string]any }
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	for _, item := range out.Schedule {
		delete(item, "chosen") // not in a drawn file
	}
	return out.Schedule, p.Drawn(nil)
}

func seeded(t *testing.T, name, seed string) scenarios.Scenario {
	t.Helper()
	list, err := scenarios.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := list[0].With([]string{"run.seed=" + seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestDrawnSchedules draws the schedules of all scenarios that ship and have one. Each must equal its golden file on
// any machine. The drawn file must yield the same schedule again.
func TestDrawnSchedules(t *testing.T) {
	random := 0
	for _, known := range scenarios.Names() {
		s := seeded(t, known.Name, "42")
		if len(s.Chaos) == 0 && s.Random == nil {
			continue
		}
		schedule, text := dryRun(t, s)
		if len(schedule) == 0 {
			t.Errorf("%s: nothing is scheduled", s.Name)
		}
		again, err := scenarios.Parse(text, "drawn.yaml")
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		same, sameText := dryRun(t, again)
		if !reflect.DeepEqual(same, schedule) {
			t.Errorf("%s: the drawn file is the schedule\n%v\nnot\n%v", s.Name, same, schedule)
		}
		if a, b := uncommented(text), uncommented(sameText); a != b {
			t.Errorf("%s: the drawn file of the drawn file differs:\n%s\n%s", s.Name, a, b)
		}
		if s.Random == nil {
			continue
		}
		random++
		golden := filepath.Join("testdata", "drawn", s.Name+".yaml")
		if *update {
			if err := os.WriteFile(golden, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(text, want) {
			t.Errorf("seed 42 does not draw %s: %v\n%s", golden, err, text)
		}
		if other, _ := dryRun(t, seeded(t, known.Name, "43")); reflect.DeepEqual(other, schedule) {
			t.Errorf("%s: another seed draws the same schedule", s.Name)
		}
	}
	if random == 0 {
		t.Error("no scenario with a random schedule was found")
	}
}

// uncommented returns the text without its comments.
func uncommented(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

const noops = `
name: memory-noops
claim: Nothing is broken, at random times, and said to be.
backend: {use: memory, ttl: 5s}
workload: {use: counter, clients: 3, hold: 1ms, resource: {use: register}}
chaos:
  random: [noop, {use: noop, on: [client-1, client-2], for: 10ms..200ms}]
  on: [clients, client-3]
  for: 50ms..150ms
  mean_gap: 150ms
  overlap: OVERLAP
run: {for: 2s, settle: 1ms}
expect: {judged: ">=1"}
`

// injected returns the planned injections and their targets from faults.jsonl, sorted by planned time. The file may
// have injections that are due at nearly the same time in either order. Times are whole ms since the start of the run.
func injected(t *testing.T, dir string) (out []history.Fault) {
	t.Helper()
	env, err := results.ReadEnv(dir)
	if err != nil {
		t.Fatal(err)
	}
	faults, err := results.ReadFaults(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		out = append(out, history.Fault{
			Name: f.Name, Targets: f.Targets, Params: f.Params, Planned: (f.Planned - env.Start) / int64(time.Millisecond),
		})
	}
	slices.SortFunc(out, func(a, b history.Fault) int { return cmp.Compare(a.Planned, b.Planned) })
	return out
}

// runIn runs lockquake in a process of its own. Processes that other tests start here inherit copies of all open files
// for a moment. A port just freed for a node would then still be in use.
func runIn(t *testing.T, out string, args ...string) (dir, said string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("lockquake", append([]string{"run", "--out", out}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	code = cmd.ProcessState.ExitCode()
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	dir = lines[len(lines)-1]
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("exit code %d: %v\n%s", code, err, stderr.String())
	}
	return dir, stdout.String(), code
}

// TestTheSameInjectionsAgain runs a drawn schedule, then the file that the run left, then a file trimmed by hand. With
// this seed the last injection ends more than a second before the run, so that even a loaded machine makes all of
// them.
func TestTheSameInjectionsAgain(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	file := filepath.Join(out, "noops.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(noops, "OVERLAP", "any")), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, said, code := runIn(t, out, file, "-v", "--seed", "5")
	first := injected(t, dir)
	if code != cli.CodeMet || len(first) < 5 {
		t.Fatalf("exit code %d, %d injections\n%s", code, len(first), said)
	}
	drawn := filepath.Join(dir, results.FileDrawn)
	if again := "lockquake run " + drawn + "\n"; !strings.Contains(said, "drawn   "+again) {
		t.Errorf("the report does not tell %s\n%s", again, said)
	}
	if !strings.Contains(said, "--seed 5\n") || !strings.Contains(said, "interleave does not repeat") {
		t.Errorf("the report does not tell how to repeat the run, and what is not repeated:\n%s", said)
	}
	dir, said, code = runIn(t, out, drawn)
	if again := injected(t, dir); code != cli.CodeMet || !reflect.DeepEqual(again, first) {
		t.Errorf("exit code %d: the drawn file made\n%+v\nnot\n%+v\n%s", code, again, first, said)
	}
	text, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for i, line := range lines {
		if strings.Contains(line, "use: noop") {
			lines[i] = ""
			break
		}
	}
	trimmed := filepath.Join(out, "trimmed.yaml")
	if err := os.WriteFile(trimmed, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, _, code = runIn(t, out, trimmed)
	want := first[1:]
	if got := injected(t, dir); code != cli.CodeMet || !reflect.DeepEqual(got, want) {
		t.Errorf("exit code %d: the trimmed file made\n%+v\nnot\n%+v", code, got, want)
	}
}

// TestInjectionsThatAreNotMade: an injection that would overlap on one node is left out, recorded and reported. It
// does not make the others doubtful. If no injection was made at all, a zero proves nothing.
func TestInjectionsThatAreNotMade(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	head, _, _ := strings.Cut(noops, "chaos:")
	text := head + `chaos:
  overlap: other-nodes
  schedule:
    - {use: noop, on: client-1, at: 100ms, for: 1500ms}
    - {use: noop, on: client-1, at: 500ms, for: 100ms}
    - {use: noop, on: client-2, at: 1100ms, for: 100ms}
run: {for: 2s, settle: 1ms}
expect: {judged: ">=1"}
`
	file := filepath.Join(out, "apart.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, said, code := runIn(t, out, file, "-v")
	faults, err := results.ReadFaults(dir)
	if err != nil || len(faults) != 3 || code != cli.CodeMet {
		t.Fatalf("exit code %d, %v: %+v\n%s", code, err, faults, said)
	}
	for i, want := range []history.ReceiptStatus{history.Installed, history.NotMade, history.Installed} {
		if f := faults[i]; f.Receipt.Status != want || (f.Healed == nil) != (want == history.NotMade) {
			t.Errorf("%+v, want %s", f, want)
		}
	}
	for _, want := range []string{"3 injections: 2 installed, 1 not-made", "because: another one is active on client-1"} {
		if !strings.Contains(said, want) {
			t.Errorf("the report does not tell %q:\n%s", want, said)
		}
	}
	drawn, err := os.ReadFile(filepath.Join(dir, results.FileDrawn))
	if err != nil || !strings.Contains(string(drawn), "# not made: another one is active on client-1") {
		t.Errorf("%v\n%s", err, drawn)
	}

	text = strings.Replace(text, "overlap: other-nodes", "overlap: never", 1)
	text = strings.Replace(text, "for: 1500ms", "for: 1950ms", 1)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, said, _ = runIn(t, out, file)
	faults, err = results.ReadFaults(dir)
	if err != nil || len(faults) != 3 || faults[1].Receipt.Status != history.NotMade || faults[2].Receipt.Status != history.NotMade {
		t.Errorf("%v: %+v\n%s", err, faults, said)
	}
}

// TestNoTwoOverlap runs a random schedule in which no two faults may overlap.
func TestNoTwoOverlap(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	file := filepath.Join(out, "noops.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(noops, "OVERLAP", "never")), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, said, code := runIn(t, out, file, "--seed", "3")
	faults, err := results.ReadFaults(dir)
	if err != nil || code != cli.CodeMet || len(faults) < 3 {
		t.Fatalf("exit code %d, %v: %+v\n%s", code, err, faults, said)
	}
	for i := 1; i < len(faults); i++ {
		if a, b := faults[i-1], faults[i]; b.Receipt.Status != history.NotMade && (a.End == 0 || b.Start < a.End) {
			t.Errorf("%+v began before %+v was healed", b, a)
		}
	}
}

// TestEveryFaultCanBeDrawn: a random schedule may consist of any single fault.
func TestEveryFaultCanBeDrawn(t *testing.T) {
	head, _, _ := strings.Cut(noops, "chaos:")
	for _, k := range faults.Kinds() {
		if k.Shell { // its command is the user's own
			continue
		}
		list := nodes.Catalog().Backends
		on := slices.IndexFunc(list, func(b listed.Backend) bool { return tryout.Applies(k, b) || k.Idle && !b.InProcess })
		text := strings.Replace(head, "memory, ttl: 5s", list[on].Name, 1) +
			"chaos: {random: [" + k.Name + "], mean_gap: 1s}\nrun: {for: 30s, seed: 3}\n"
		s, err := scenarios.Parse([]byte(text), k.Name+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		schedule, drawn := dryRun(t, s)
		if len(schedule) == 0 || !strings.Contains(string(drawn), "use: "+k.Name+",") {
			t.Errorf("%s was not drawn:\n%s", k.Name, drawn)
		}
	}
}
