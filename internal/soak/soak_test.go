package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/campaign"
)

// row is the one row of the tests' own tree.
var row = Row{ID: "story@docker", Scenario: "story", Provider: "docker", Count: 4}

// tree makes a folder with a program that answers like lockquake: it counts its calls, and its third run fails.
func tree(t *testing.T) (*runner, *record) {
	t.Helper()
	t.Chdir(t.TempDir())
	r := &runner{bin: "./lockquake", commit: "c0ffee", tell: io.Discard}
	write(t, r.bin, `#!/bin/sh
kept=false
while read -r job; do
  times=$(echo "$job" | sed 's/.*"repeat":\([0-9]*\).*/\1/') code=0
  if [ -e "$0.missing" ]; then echo "{\"job\":\"it\",\"runs\":0,\"code\":3,\"error\":\"$(cat "$0.missing")\"}"; continue; fi
  for i in $(seq $times); do
    n=$(($(cat "$0.n" 2>/dev/null || echo 0) + 1)); echo $n >"$0.n"
    v=pass; [ $n = 3 ] && v=fail code=1
    interrupted=false; [ "$(cat "$0.stop" 2>/dev/null)" = $n ] && interrupted=true
    if [ "$(cat "$0.crash" 2>/dev/null)" = $n ]; then echo "it broke" >&2; exit $(cat "$0.code" 2>/dev/null || echo 9); fi
    if [ "$(cat "$0.wait" 2>/dev/null)" = $n ]; then trap "exit 130" INT; echo waits >&2; while :; do sleep 0.01; done; fi
    mkdir -p runs/$n; echo "{\"schema\":\"lockquake/env/1\",\"interrupted\":$interrupted,\"host\":{\"load_before\":\"$n 1 1\",\"cores\":\"2\"}}" >runs/$n/env.json
    echo "{\"schema\":\"lockquake/verdict/1\",\"verdict\":\"$v\",\"kept\":$kept,\"reasons\":[\"run $n\"],\"judged\":{\"grants\":100},\"counts\":{\"double_grants\":0,\"stale_writes\":2,\"stuck_locks\":null},\"run_dir\":\"runs/$n\"}"
    if [ $interrupted = true ]; then echo 0 >"$0.stop"; exit 130; fi
    kept=true
  done
  echo "{\"job\":\"it\",\"runs\":$times,\"code\":$code}"
done
`)
	if err := os.Chmod(r.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.end)
	return r, open(t, ".soak/record.jsonl")
}

func open(t *testing.T, path string) *record {
	t.Helper()
	rec, err := openRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.file.Close() })
	return rec
}

func write(t *testing.T, path, text string) {
	t.Helper()
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
	r, rec := tree(t)
	write(t, r.bin+".stop", "3")
	if err := r.bring(t.Context(), row, rec); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("an interrupted run must end the soak: %v", err)
	}
	rec = open(t, rec.file.Name())
	if n := len(rec.runs[row.ID]); n != 2 {
		t.Fatalf("two runs were done and must be kept: %d", n)
	}
	if err := r.bring(t.Context(), row, rec); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(read(t, r.bin+".n")); got != "5" {
		t.Errorf("two runs, the interrupted one and two more are 5 starts, not %s", got)
	}
	runs := open(t, rec.file.Name()).runs[row.ID]
	if len(runs) != 4 {
		t.Fatalf("%d runs", len(runs))
	}
	for i, want := range []campaign.Result{{Dir: "1"}, {Dir: "2", Kept: true}, {Dir: "4"}, {Dir: "5", Kept: true}} {
		got := runs[i]
		if filepath.Base(got.Dir) != want.Dir || got.Kept != want.Kept || got.Load != want.Dir+" 1 1" || got.Commit != "c0ffee" || got.Date.IsZero() || got.Judged.Grants != 100 {
			t.Errorf("run %d is %+v, want %s, kept %t, with its own load", i+1, got, want.Dir, want.Kept)
		}
	}
	if err := r.bring(t.Context(), row, rec); err != nil || len(rec.runs[row.ID]) != 4 {
		t.Errorf("a whole row is run again: %v", err)
	}
}

// Ctrl-C asks the program to end, waits for it, and keeps the runs before.
func TestCtrlC(t *testing.T) {
	r, rec := tree(t)
	write(t, r.bin+".wait", "2")
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	r.tell = in
	go func() {
		var text strings.Builder
		b := make([]byte, 100)
		for {
			n, err := out.Read(b)
			if text.Write(b[:n]); err != nil {
				return
			}
			if strings.Contains(text.String(), "waits") {
				cancel()
			}
		}
	}()
	err := r.bring(ctx, row, rec)
	in.Close()
	if err == nil || !strings.Contains(err.Error(), "interrupted") || len(rec.runs[row.ID]) != 1 {
		t.Errorf("%d runs are kept, %v", len(rec.runs[row.ID]), err)
	}
}

// A last line that was cut off is not a run, and the next run gets its own line.
func TestATornLastLine(t *testing.T) {
	whole := `{"row":"story@docker","verdict":"pass","commit":"a"}` + "\n"
	for name, torn := range map[string]string{"none": "", "a brace": "{", "half a line": `{"row":"story@docker","ver`, "half a number": `{"row":"story@docker","seconds":1.`} {
		for _, before := range []string{"", whole, whole + whole} {
			path := filepath.Join(t.TempDir(), "record.jsonl")
			write(t, path, before+torn)
			rec := open(t, path)
			if got, want := len(rec.runs[row.ID]), strings.Count(before, "\n"); got != want {
				t.Errorf("%s behind %d lines: %d runs", name, want, got)
			}
			if err := rec.add(Run{Result: campaign.Result{Job: row.ID, Verdict: passed}}); err != nil {
				t.Fatal(err)
			}
			if got, want := len(open(t, path).runs[row.ID]), strings.Count(before, "\n")+1; got != want {
				t.Errorf("%s: %d runs after one more, want %d", name, got, want)
			}
			if text := read(t, path); !strings.HasPrefix(text, before) || strings.Contains(text, "}{") {
				t.Errorf("%s: the file is now\n%s", name, text)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "record.jsonl")
	write(t, path, "nonsense\n"+whole)
	if _, err := openRecord(path); err == nil {
		t.Error("a line in the middle that is no run must be told")
	}
}

func TestAProgramThatBreaksDownIsARunThatDidNotPass(t *testing.T) {
	for code, want := range map[string]string{"9": "exit code 9: it broke", "3": "exit code 3: it broke"} { // a row that could be run before is not missing
		r, rec := tree(t)
		write(t, r.bin+".crash", "2")
		write(t, r.bin+".code", code)
		if err := r.bring(t.Context(), row, rec); err != nil {
			t.Fatal(err)
		}
		runs := rec.runs[row.ID]
		if len(runs) != 2 || len(rec.missing) != 0 {
			t.Fatalf("%d runs, missing %v", len(runs), rec.missing)
		}
		if got := runs[1]; got.Verdict != broken || len(got.Reasons) != 1 || got.Reasons[0] != want {
			t.Errorf("the run that broke down is %+v", got)
		}
	}
}

func TestFailuresEndTheSoakWithAnError(t *testing.T) {
	r, rec := tree(t)
	if err := r.bring(t.Context(), row, rec); err != nil {
		t.Fatal(err)
	}
	if err := verdict([]Row{row}, rec); err == nil || !strings.Contains(err.Error(), "story@docker: fail (runs/3)") {
		t.Error(err)
	}
	more := row
	more.Count = 5
	if err := verdict([]Row{more}, rec); err == nil || !strings.Contains(err.Error(), "4 of 5 runs") {
		t.Error(err)
	}
}

// A row that cannot be run here is named with the reason. It is not a failure unless this machine must support it.
func TestARowThatCannotBeRunHere(t *testing.T) {
	r, rec := tree(t)
	write(t, r.bin+".missing", "zookeeper is not installed")
	if err := r.bring(t.Context(), row, rec); err != nil {
		t.Fatal(err)
	}
	rec = open(t, rec.file.Name())
	if why := rec.missing[row.ID]; why != "zookeeper is not installed" {
		t.Errorf("missing for %q", why)
	}
	if err := verdict([]Row{row}, rec); err == nil || !strings.Contains(err.Error(), "zookeeper is not installed") {
		t.Errorf("a row that must be run was not: %v", err)
	}
	optional := row
	optional.Provider = "local"
	if err := verdict([]Row{optional}, rec); err != nil {
		t.Error(err)
	}
	os.Remove(r.bin + ".missing")
	if err := r.bring(t.Context(), row, rec); err != nil || len(rec.missing) != 0 || len(rec.runs[row.ID]) != 4 {
		t.Errorf("once it can be run it is no longer missing: %v, %v", rec.missing, err)
	}
}
