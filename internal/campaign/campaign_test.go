package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
)

// names is a plan that makes each job once, in order. It continues after a job that was not made.
type names []Job

func (n names) Next(done []Result) (Job, bool) {
	if len(done) == len(n) {
		return Job{}, false
	}
	return n[len(done)], true
}

func jobs(list ...string) (out names) {
	for _, name := range list {
		out = append(out, Job{Name: name})
	}
	return out
}

// notes is a reader that notes the name of each job.
type notes struct{ ended []string }

func (n *notes) Begin(Job, *engine.Options) {}

func (n *notes) End(j Job, r *Result) (err error) {
	n.ended = append(n.ended, j.Name)
	r.Note, err = json.Marshal("of " + j.Name)
	return err
}

// faked returns a campaign whose runs are made by a function. Each is judged to have passed with some grants.
func faked(dir string, j *Journal, run func(n int) error) (c *Campaign, read *notes) {
	n := 0
	read = &notes{}
	c = &Campaign{Dir: dir, Journal: j, Reader: read}
	c.run = func(context.Context, engine.Options) (string, error) {
		n++
		at := filepath.Join(dir, fmt.Sprintf("run-%d", n))
		return at, run(n)
	}
	c.judge = func(string, results.Checkers) (results.Report, error) {
		return results.Report{Verdict: results.Pass, Judged: results.Judged{Grants: 7}}, nil
	}
	return c, read
}

var origin = results.Origin{Version: "v1", Command: "lockquake many x", Started: "2026-11-28T00:00:00Z", Host: map[string]string{"cores": "2"}}

// TestGoingOn: a campaign that is interrupted in its third run has two results, and makes the others when it goes on.
func TestGoingOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	c, read := faked(dir, New(dir, origin), func(n int) error {
		if n == 3 {
			cancel()
		}
		return nil
	})
	plan := jobs("a", "b", "c", "d")
	done, err := c.Run(ctx, plan)
	if err != nil || len(done) != 2 || !c.Interrupted || strings.Join(read.ended, "") != "abc" {
		t.Fatalf("%d results, interrupted %t, ended %v, %v", len(done), c.Interrupted, read.ended, err)
	}
	j, err := Open(dir)
	if err != nil || j.Header.Refuse("campaign", origin) != nil || j.Dropped {
		t.Fatalf("%v, %+v", err, j)
	}
	for i := range done {
		done[i].At = ""
	}
	if !reflect.DeepEqual(j.Results(), done) {
		t.Errorf("%+v were read back as %+v", done, j.Results())
	}
	c, read = faked(dir, j, func(int) error { return nil })
	if done, err = c.Run(t.Context(), plan); err != nil || len(done) != 4 || c.Interrupted || strings.Join(read.ended, "") != "cd" {
		t.Errorf("%d results, ended %v, %v", len(done), read.ended, err)
	}
	j, err = Open(dir)
	if err != nil || len(j.Results()) != 4 {
		t.Fatal(err)
	}
	for i, r := range j.Results() {
		if want := fmt.Sprintf(`"of %s"`, plan[i].Name); string(r.Note) != want || r.Judged.Grants != 7 || r.Verdict != results.Pass || !strings.HasPrefix(r.Dir, "run-") {
			t.Errorf("%+v, want the note %s", r, want)
		}
	}
}

// TestCutOff: if the machine died while a line was written, that line is dropped wherever it was cut, and the journal
// continues after the line before. Any other damage is an error that names the line.
func TestCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := faked(dir, New(dir, origin), func(int) error { return nil })
	if _, err := c.Run(t.Context(), jobs("a", "b")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, File)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := strings.LastIndex(strings.TrimSuffix(string(whole), "\n"), "\n") + 1
	for at := last + 1; at < len(whole); at++ {
		if err := os.WriteFile(path, whole[:at], 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := Open(dir)
		if err != nil || !j.Dropped || len(j.Results()) != 1 {
			t.Fatalf("cut at %d: %v", at, err)
		}
		if at%17 != 0 {
			_ = j.Close()
			continue
		}
		again, _ := faked(dir, j, func(int) error { return nil })
		if done, err := again.Run(t.Context(), jobs("a", "b")); err != nil || len(done) != 2 {
			t.Fatalf("cut at %d, and gone on: %v", at, err)
		}
		if j, err = Open(dir); err != nil || len(j.Results()) != 2 || j.Dropped {
			t.Fatalf("cut at %d, and gone on: %v", at, err)
		}
		_ = j.Close()
	}
	damaged := strings.Replace(string(whole), `{"job":"a"`, `{"job":a`, 1)
	if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), File+", line 2: ") {
		t.Errorf("a damaged line: %v", err)
	}
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Errorf("another file: %v", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// TestNotMade: the plan learns of a job that does not fit into the budget or lacks something, and goes on. Such a job
// is not in the journal and keeps no other run from being made. A campaign without any result leaves nothing.
func TestNotMade(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	c, _ := faked(dir, New(dir, origin), func(n int) error {
		switch n {
		case 1:
			return engine.MissingError{Text: "no such server\nhere"}
		case 2:
			return fmt.Errorf("up: %w", chaos.Unavailable{What: "netem", Reason: "no kernel"})
		}
		return nil
	})
	c.Budget = time.Minute
	plan := names{{Name: "long", Takes: time.Hour}, {Name: "unfit", Cannot: engine.MissingError{Text: "no engine"}}, {Name: "gone"}, {Name: "cannot be had"}}
	done, err := c.Run(t.Context(), plan)
	if err != nil || len(done) != 4 {
		t.Fatal(done, err)
	}
	for i, want := range []string{"the budget of 1m0s", "no engine", "no such server; here", "up: " + chaos.Unavailable{What: "netem", Reason: "no kernel"}.Error()} {
		if done[i].NotMade != want {
			t.Errorf("%s: %q, want %q", done[i].Job, done[i].NotMade, want)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a campaign without a run left a directory: %v", err)
	}
	if done, err = c.Run(t.Context(), jobs("a")); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
}

// TestBroken: a run that breaks is a result with the reason, and the next one is made.
func TestBroken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := faked(dir, nil, func(n int) error {
		if n == 1 {
			return errors.New("its network stays")
		}
		return nil
	})
	if done, err := c.Run(t.Context(), jobs("a", "b")); err != nil || len(done) != 2 || done[0].Broke != "its network stays" || done[1].Broke != "" {
		t.Errorf("%+v, %v", done, err)
	}
}

// TestRefuse: a campaign begun by another command, version or machine is not resumed. The program's path is not part
// of the command.
func TestRefuse(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*results.Origin){
		"":                              func(h *results.Origin) { h.Command = "/usr/bin/lockquake many x" },
		"the command differs":           func(h *results.Origin) { h.Command = "lockquake many y" },
		"by version v1, but this is v2": func(h *results.Origin) { h.Version = "v2" },
		"cores was 2, but is 4":         func(h *results.Origin) { h.Host = map[string]string{"cores": "4"} },
	} {
		now := origin
		change(&now)
		switch err := (Header{Schema, origin}).Refuse("campaign", now); {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestCostOf: a cost is the median over earlier runs of the provider; without any, the default.
func TestCostOf(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	if got := CostOf("docker", runs); got != usual["docker"] {
		t.Errorf("without a run: %+v", got)
	}
	write := func(at string, env results.Env) {
		t.Helper()
		env.Schema = results.EnvSchema
		dir := filepath.Join(runs, at)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := results.WriteJSON(filepath.Join(dir, results.FileEnv), env); err != nil {
			t.Fatal(err)
		}
	}
	for i, ms := range []int64{1000, 9000, 2000} {
		write(fmt.Sprintf("s%d/latest", i), results.Env{Provider: "docker", Timings: map[string]int64{results.TimeOpen: ms, results.TimeServe: 500}})
	}
	write("suite/s/latest", results.Env{Provider: "docker", Kept: true, Timings: map[string]int64{results.TimeReset: 300, results.TimeDown: 400, results.TimeLoad: 60000}})
	for _, cut := range []string{"cut/latest", "cut-too/latest"} {
		write(cut, results.Env{Provider: "docker", Interrupted: true, Timings: map[string]int64{results.TimeOpen: 1}})
	}
	write("other/latest", results.Env{Provider: "swarm", Timings: map[string]int64{results.TimeOpen: 1}})
	if got, want := CostOf("docker", runs), (Cost{2500 * time.Millisecond, 700 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
