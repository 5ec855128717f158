package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tree makes a git tree with a program that answers as lockquake does: it counts its calls, and its third run fails.
func tree(t *testing.T) options {
	t.Helper()
	top := t.TempDir()
	write(t, filepath.Join(top, "lockquake"), `#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --repeat ] && times=$2; shift; done
kept=false code=0
if [ -e "$0.missing" ]; then cat "$0.missing" >&2; exit 3; fi
for i in $(seq $times); do
  n=$(($(cat "$0.n" 2>/dev/null || echo 0) + 1)); echo $n >"$0.n"
  v=pass; [ $n = 3 ] && v=fail code=1
  interrupted=false; [ "$(cat "$0.stop" 2>/dev/null)" = $n ] && interrupted=true
  if [ "$(cat "$0.crash" 2>/dev/null)" = $n ]; then echo "it broke" >&2; exit $(cat "$0.code" 2>/dev/null || echo 9); fi
  mkdir -p runs/$n; echo "{\"schema\":\"lockquake/env/1\",\"interrupted\":$interrupted,\"started\":\"2026-01-02T03:04:05Z\",\"host\":{\"load_before\":\"$n 1 1\"}}" >runs/$n/env.json
  echo "{\"schema\":\"lockquake/verdict/1\",\"verdict\":\"$v\",\"kept\":$kept,\"reasons\":[\"run $n\"],\"judged\":{\"grants\":100},\"counts\":{\"double_grants\":0,\"stale_writes\":2,\"stuck_locks\":null},\"run_dir\":\"$PWD/runs/$n\"}"
  if [ $interrupted = true ]; then echo 0 >"$0.stop"; exit 130; fi
  kept=true
done
exit $code
`)
	if err := os.Chmod(filepath.Join(top, "lockquake"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(top, "lock", "lock.go"), "package lock\n")
	write(t, filepath.Join(top, "lock", "lock_test.go"), "package lock\n")
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "lock"},
		{"-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "x"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", top}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	o := options{
		runner: runner{bin: filepath.Join(top, "lockquake"), top: top, out: filepath.Join(top, "runs"), tell: io.Discard},
		state:  filepath.Join(top, ".soak"), page: filepath.Join(top, "docs", "soak.md"),
		rows: []Row{{Scenario: "story", File: "story.yaml", Backend: "etcd", Provider: "docker", Count: 4, Shows: "something"}},
		only: "*",
	}
	see(t, &o)
	return o
}

// lockOnly is what the rows of the tests depend on.
var lockOnly = []string{"lock/*"}

// see takes down the state of the tree, without the modules of packages that it does not have.
func see(t *testing.T, o *options) {
	t.Helper()
	o.keys, o.paths = map[string]string{}, map[string][]string{}
	for _, row := range o.rows {
		key, err := newWorktree(o.runner.top).key(lockOnly, []string{"module v1"})
		if err != nil {
			t.Fatal(err)
		}
		o.keys[row.ID()], o.paths[row.ID()] = key, lockOnly
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAnInterruptedRowGoesOn(t *testing.T) {
	o := tree(t)
	write(t, o.runner.bin+".stop", "3")
	if err := o.do(context.Background(), o.rows[0]); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("an interrupted run must end the soak: %v", err)
	}
	if state, _, err := o.load(o.rows[0]); err != nil || len(state.Runs) != 2 {
		t.Fatalf("two runs were done and must be kept: %d, %v", len(state.Runs), err)
	}
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(read(t, o.runner.bin+".n")); got != "5" {
		t.Errorf("two runs, the interrupted one and two more are 5 starts, not %s", got)
	}
	state, _, err := o.load(o.rows[0])
	if err != nil || len(state.Runs) != 4 {
		t.Fatalf("%d runs, %v", len(state.Runs), err)
	}
	for i, want := range []Run{{Dir: "runs/1"}, {Dir: "runs/2", Kept: true}, {Dir: "runs/4"}, {Dir: "runs/5", Kept: true}} {
		got := state.Runs[i]
		if got.Dir != want.Dir || got.Kept != want.Kept || got.Load != strings.TrimPrefix(want.Dir, "runs/")+" 1 1" || got.Began.Year() != 2026 {
			t.Errorf("run %d is %+v, want %s, kept %t, with its own load and time", i+1, got, want.Dir, want.Kept)
		}
	}
}

func TestAProgramThatBreaksDownIsARunThatDidNotPass(t *testing.T) {
	o := tree(t)
	write(t, o.runner.bin+".crash", "2")
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	state, _, err := o.load(o.rows[0])
	if err != nil || len(state.Runs) != 2 {
		t.Fatalf("%d runs, %v", len(state.Runs), err)
	}
	if r := state.Runs[1]; r.Verdict != "error" || len(r.Reasons) != 1 || r.Reasons[0] != "exit code 9: it broke" {
		t.Errorf("the run that broke down is %+v", r)
	}
}

func TestOneRunAtATime(t *testing.T) {
	o := tree(t)
	o.most = 1
	for want := 1; want <= 2; want++ {
		if err := o.do(context.Background(), o.rows[0]); err != nil {
			t.Fatal(err)
		}
		if state, _, err := o.load(o.rows[0]); err != nil || len(state.Runs) != want {
			t.Errorf("%d runs are done, want %d: %v", len(state.Runs), want, err)
		}
	}
	if err := o.verdict(); err == nil {
		t.Error("two runs of four are not the whole")
	}
}

func TestFailuresAreCountedAndNamed(t *testing.T) {
	o := tree(t)
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	text := read(t, o.page)
	for _, want := range []string{"3 of 4", "| 3 | 400 |", " 8 (in 4) |", "– |", "run 3: fail; run 3 (`runs/3`)"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if err := o.verdict(); err == nil {
		t.Error("a run that failed must end the soak with an error")
	}
}

func TestOnlyChangesThatMatterStartARowAnew(t *testing.T) {
	o := tree(t)
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(o.runner.top, "lock", "lock_test.go"), "package lock // changed\n")
	write(t, filepath.Join(o.runner.top, "other", "x.go"), "package other\n")
	see(t, &o)
	if state, _, err := o.load(o.rows[0]); err != nil || len(state.Runs) != 4 {
		t.Errorf("a test or another folder must not cost the figures: %d runs, %v", len(state.Runs), err)
	}
	write(t, filepath.Join(o.runner.top, "lock", "lock.go"), "package lock\n\nvar changed int\n")
	see(t, &o)
	if state, _, err := o.load(o.rows[0]); err != nil || len(state.Runs) != 0 {
		t.Errorf("figures of other code must not be kept: %d runs, %v", len(state.Runs), err)
	}
	if err := o.write(); err != nil {
		t.Fatal(err)
	}
	if text := read(t, o.page); !strings.Contains(text, "3 of 4") || !strings.Contains(text, `\* | 20`) {
		t.Errorf("the page keeps figures of other code and says so:\n%s", text)
	}
	if c, err := commit(o.runner.top, lockOnly); err != nil || !strings.HasSuffix(c, "-dirty") {
		t.Errorf("the commit must be called dirty: %q, %v", c, err)
	}
}

func TestKeyIsOfCodeNotOfComments(t *testing.T) {
	const base = "//go:build linux\n\n// Package p is old.\npackage p\n\n// F is f.\nfunc F() int { return 1 } // one\n"
	for name, c := range map[string]struct {
		text string
		same bool
	}{
		"other comments":      {"//go:build linux\n\n// Package p is new.\npackage p\n\nfunc F() int { return 1 /* 1 */ }\n", true},
		"another number":      {strings.Replace(base, "return 1", "return 2", 1), false},
		"another directive":   {strings.Replace(base, "linux", "darwin", 1), false},
		"a comment in a text": {strings.Replace(base, "{ return 1 }", "{ return len(`// one`) }", 1), false},
	} {
		if same := bytes.Equal(code([]byte(base)), code([]byte(c.text))); same != c.same {
			t.Errorf("%s: the same is %v, want %v", name, same, c.same)
		}
	}
}

// What could be run before is not what a machine cannot run.
func TestARunThatDoesNotStartLaterOnIsCounted(t *testing.T) {
	o := tree(t)
	write(t, o.runner.bin+".crash", "2")
	write(t, o.runner.bin+".code", "3")
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	state, _, err := o.load(o.rows[0])
	if err != nil || len(state.Runs) != 2 || state.Missing != "" {
		t.Fatalf("%d runs, %q, %v", len(state.Runs), state.Missing, err)
	}
	if r := state.Runs[1]; r.Verdict != "error" || r.Reasons[0] != "exit code 3: it broke" {
		t.Errorf("%+v", r)
	}
}

// Runs that are put aside stay on the page with their reasons, and their row begins anew. One that failed is not put aside.
func TestAnew(t *testing.T) {
	o := tree(t)
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	if err := o.anew("too loud"); err == nil {
		t.Error("every row is put aside, though none was named")
	}
	o.only = "story"
	if err := o.anew("too loud"); err == nil || !strings.Contains(err.Error(), "run 3") {
		t.Errorf("a run that failed is put aside: %v", err)
	}
	state, file, err := o.load(o.rows[0])
	if err != nil {
		t.Fatal(err)
	}
	state.Runs[2].Verdict = "unknown"
	if err := state.save(file); err != nil {
		t.Fatal(err)
	}
	if err := o.anew("the machine was too loud"); err != nil {
		t.Fatal(err)
	}
	if state, _, err := o.load(o.rows[0]); err != nil || len(state.Runs) != 0 {
		t.Fatalf("%d runs are left: %v", len(state.Runs), err)
	}
	if err := o.anew("again"); err == nil {
		t.Error("a row without runs is put aside")
	}
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	text := read(t, o.page)
	for _, want := range []string{"3 pass, 1 unknown. the machine was too loud", "run 3: unknown; run 3 (load 3 1 1)", "4 of 4 †"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

// A row that cannot be run here is named with the reason; it is no failure where the machine is not asked to deliver it.
func TestARowThatCannotBeRunHere(t *testing.T) {
	o := tree(t)
	write(t, o.runner.bin+".missing", "zookeeper is not installed")
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	if text := read(t, o.page); !strings.Contains(text, "story@docker cannot be run here: zookeeper is not installed") || strings.Contains(text, "Not run yet") {
		t.Error(text)
	}
	if err := o.verdict(); err == nil {
		t.Error("a row that must be run was not, and nobody minds")
	}
	o.rows[0].Optional = true
	if err := o.verdict(); err != nil {
		t.Error(err)
	}
}

// What is demanded of many runs together ends the soak with an error when it is not met.
func TestADemandThatIsNotMet(t *testing.T) {
	o := tree(t)
	o.rows = familyRows()
	see(t, &o)
	lost := int64(0)
	for _, row := range o.rows {
		if row.Set != nil && row.Member.Target == "leader" {
			s := State{Key: o.keys[row.ID()], Runs: []Run{{Verdict: "pass", Acknowledged: 40, Counts: map[string]*int64{"lost_elements": &lost}}}}
			if err := s.save(o.file(row)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := o.verdict(); err == nil || !strings.Contains(err.Error(), "More than none is lost") || !strings.Contains(err.Error(), "not met") {
		t.Error(err)
	}
}

// A run of a story beyond the limit is named, with the load that it was made at; one of anything else is not.
func TestSlowRuns(t *testing.T) {
	runs := []Run{{Seconds: 12}, {Seconds: 31.5, Load: "20.1 9 8"}}
	rows := []Row{{Scenario: "a", File: "stories/a.yaml", Provider: "docker"}, {Scenario: "b", File: "healthy/b.yaml", Provider: "docker"}}
	states := []State{{Runs: runs}, {Runs: runs}}
	if text := slow(rows, states); !strings.Contains(text, "a@docker (1 of 2, up to 31.5 s at a load of 20.1 9 8)") || strings.Contains(text, "b@docker") {
		t.Error(text)
	}
	if text := slow(rows[1:], states[1:]); !strings.Contains(text, "No run") {
		t.Error(text)
	}
}
