package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/cmd/lockquake/asnode"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// mutatedRuns is the number of damaged run directories to judge, unless LOCKQUAKE_MUTATED_RUNS is set.
const mutatedRuns = 150

// Limits of one check. Time is processor time, because others may use the machine too. Memory is the total of all
// allocations, which is more than was in use at once.
const (
	mutatedTime   = 10 * time.Second
	mutatedMemory = 1 << 30
)

// runFiles is a run directory: contents by path.
type runFiles map[string][]byte

// The runs to damage. One has everything that a workload makes, one has a lock that never excludes. A third, recorded
// from a story, has steps, faults and the servers' logs.
var mutatedScenarios = []string{`name: mutated-healthy
claim: A run that is broken afterwards.
backend: {use: memory, lock: exact, ttl: 300ms}
workload: {use: counter, clients: 2, users: 2, hold: 4ms, renew: true, resource: {use: register, guard: fence}}
chaos: [{use: noop, on: clients, at: 20ms, for: 30ms, every: 60ms}]
run: {for: 150ms, seed: 42, settle: 1ms}
expect: {judged: ">=1", double_grants: "0", stale_writes: "0", lost_updates: "0"}
`, `name: mutated-wrong
claim: A run that is broken afterwards.
backend: {use: memory, lock: never-excludes, ttl: 300ms}
workload: {use: balance, accounts: 3, clients: 2, users: 2, hold: 4ms, resource: {use: register, guard: none}}
run: {for: 60ms, seed: 42, settle: 1ms}
expect: {judged: ">=1", double_grants: ">0", sum_off: ">=0"}
`}

// recordedRun is the directory of a story's run.
const recordedRun = "../../results/report/testdata/split-brain"

// TestMutatedRunDirectories: check must return a verdict or say where the directory is damaged, whatever it contains.
// LOCKQUAKE_MUTATED_RUNS=N judges N directories, and draws their reports too.
func TestMutatedRunDirectories(t *testing.T) {
	n, draw := mutatedRuns, false
	if text := os.Getenv("LOCKQUAKE_MUTATED_RUNS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		draw = true
	}
	var bases []runFiles
	for _, dir := range []string{runMutated(t, mutatedScenarios[0]), runMutated(t, mutatedScenarios[1]), recordedRun} {
		base := readRun(t, dir)
		bases = append(bases, base)
		if o := checkRun(t, base, false); o.err != "" {
			t.Fatalf("%s, which nobody broke: %s", dir, o.err)
		}
	}
	var all tallyOfChecks
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 4711))
		base := bases[r.IntN(len(bases))]
		m := mutations[int(seed)%len(mutations)]
		run := runFiles{}
		for name, b := range base {
			run[name] = slices.Clone(b)
		}
		what := m.change(r, run)
		o := checkRun(t, run, draw)
		what = fmt.Sprintf("seed %d, %s, %s", seed, m.name, what)
		all.add(what, o)
		if why := o.wrong(); why != "" {
			t.Errorf("%s: %s: exit code %d, %v, %d bytes allocated\n%s\n%s", what, why, o.code, o.took, o.allocated, o.err, clipped(o.out))
		}
	}
	t.Log(all)
}

// tallyOfChecks sums up many checks.
type tallyOfChecks struct {
	verdicts map[string]int
	errors   int
	slowest  time.Duration
	largest  uint64
	slow     string // the slowest one
	large    string // the one that used the most memory
}

func (a *tallyOfChecks) add(what string, o outcomeOfCheck) {
	if a.verdicts == nil {
		a.verdicts = map[string]int{}
	}
	if o.verdict != "" {
		a.verdicts[o.verdict]++
	} else {
		a.errors++
	}
	if o.took > a.slowest {
		a.slowest, a.slow = o.took, what
	}
	if o.allocated > a.largest {
		a.largest, a.large = o.allocated, what
	}
}

// String formats the tally for the log of the test.
func (a tallyOfChecks) String() string {
	return fmt.Sprintf("verdicts %v, errors %d; the slowest took %v (%s), the most that one allocated is %.1f MiB (%s)",
		a.verdicts, a.errors, a.slowest, a.slow, float64(a.largest)/(1<<20), a.large)
}

// outcomeOfCheck is the result of check on a directory.
type outcomeOfCheck struct {
	code      int
	verdict   string // "": none
	out, err  string
	took      time.Duration
	allocated uint64 // bytes
}

// placed matches the place of a damage: an offset, a line, or a file that is missing as a whole.
var placed = regexp.MustCompile(`\.lqh: offset [0-9]+: |\.lqh: (no header|truncated within its header|header: |format version|it is |its header )|\.lqh has other locks|` +
	`(faults|observed)\.jsonl: line [0-9]+: |scenario\.yaml:[0-9]+:[0-9]+: |scenario\.yaml: |env\.json: |: it is (missing|a directory|a link|no regular file)|the file is missing|` +
	`it holds [0-9]+ events|no history files`)

// wrong says what is not as required, or returns "".
func (o outcomeOfCheck) wrong() string {
	switch {
	case o.took > mutatedTime:
		return "it took too long"
	case o.allocated > mutatedMemory:
		return "it took too much memory"
	case strings.Contains(o.out, "checker crashed"):
		return "a checker crashed"
	case o.verdict != "" && o.code != cli.VerdictCode(results.Verdict(o.verdict)):
		return "verdict and exit code differ"
	case o.verdict == "" && o.code != cli.CodeInconclusive:
		return "the exit code is not 4"
	case o.verdict == "" && !placed.MatchString(o.err):
		return "nobody says where it is broken"
	}
	return ""
}

// checkRun writes a run directory and checks it.
func checkRun(t *testing.T, run runFiles, draw bool) (o outcomeOfCheck) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "run-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for name, b := range run {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	verbs := [][]string{{"check", "--format", "json", dir}}
	if draw {
		verbs = append(verbs, []string{"report", "--explain", dir})
	}
	for i, args := range verbs {
		var out, errs bytes.Buffer
		before, began := allocated(), wire.CPU()
		code := execute(args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		o.took = max(o.took, time.Duration(wire.CPU()-began))
		o.allocated = max(o.allocated, allocated()-before)
		if i == 0 {
			o.code, o.out, o.err = code, out.String(), strings.ReplaceAll(errs.String(), dir, "")
			var rep results.Report
			if json.Unmarshal(out.Bytes(), &rep) == nil {
				o.verdict = string(rep.Verdict)
			}
		}
	}
	return o
}

// allocated returns the total of bytes ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func clipped(text string) string { return text[:min(len(text), 400)] }

// runMutated makes a run.
func runMutated(t *testing.T, text string) string {
	t.Helper()
	sc, err := scenarios.Parse([]byte(text), "mutated.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := engine.Run(t.Context(), engine.Options{
		Request: engine.Request{Scenario: sc, Provider: cluster.NewInproc(asnode.InProcess), Catalog: nodes.Catalog()}, Out: t.TempDir(), Version: "test",
		Started: time.Now(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func readRun(t *testing.T, dir string) runFiles {
	t.Helper()
	run := runFiles{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		run[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	return run
}
