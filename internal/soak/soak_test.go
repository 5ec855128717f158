package main

import (
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
n=$(($(cat "$0.n" 2>/dev/null || echo 0) + 1)); echo $n >"$0.n"
if [ "$(cat "$0.stop" 2>/dev/null)" = $n ]; then echo 0 >"$0.stop"; exit 130; fi
v=pass; [ $n = 3 ] && v=fail
echo "{\"schema\":\"lockquake/verdict/1\",\"verdict\":\"$v\",\"reasons\":[\"run $n\"],\"judged\":{\"grants\":100},\"counts\":{\"double_grants\":0,\"stale_writes\":2,\"stuck_locks\":null},\"run_dir\":\"runs/$n\"}"
[ $v = pass ]
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

// see takes down the state of the tree, without the modules of packages that it does not have.
func see(t *testing.T, o *options) {
	t.Helper()
	o.keys = map[string]string{}
	for _, row := range o.rows {
		key, err := treeKey(o.runner.top, row.Paths(), []string{"module v1"})
		if err != nil {
			t.Fatal(err)
		}
		o.keys[row.ID()] = key
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
}

func TestFailuresAreCountedAndNamed(t *testing.T) {
	o := tree(t)
	if err := o.do(context.Background(), o.rows[0]); err != nil {
		t.Fatal(err)
	}
	text := read(t, o.page)
	for _, want := range []string{"3 of 4", "| 400 |", " 8 (in 4) |", "– |", "run 3: fail; run 3 (`runs/3`)"} {
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
	write(t, filepath.Join(o.runner.top, "lock", "lock.go"), "package lock // changed\n")
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
	if c, err := commit(o.runner.top, o.rows[0].Paths()); err != nil || !strings.HasSuffix(c, "-dirty") {
		t.Errorf("the commit must be called dirty: %q, %v", c, err)
	}
}
