package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockquake/lockquake/results"
)

// The exit codes of `lockquake run` that are no verdict.
const (
	exitUsage       = 2
	exitMissing     = 3
	exitInterrupted = 130
)

// runner runs scenarios by the built program, each in a process of its own as a user would.
type runner struct {
	bin  string // path of the program
	top  string // of the tree
	out  string // folder of all runs
	tell io.Writer
}

// errMissing says that a row cannot be run on this machine.
var errMissing = errors.New("cannot be run here")

// errInterrupted says that the run was interrupted; it does not count.
var errInterrupted = errors.New("interrupted")

// several makes n runs of a row in one process, which keeps the servers between them where it can show that they are clean, and hands
// each on when it is done. A program that breaks down without a verdict counts as a run that did not pass; a run for which something
// needed is missing does not count, nor does one that was interrupted.
func (r runner) several(ctx context.Context, row Row, n int, take func(Run) error) error {
	args, err := r.args(row, n)
	if err != nil {
		return err
	}
	var stderr tail
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Dir, cmd.Stderr = r.top, io.MultiWriter(&stderr, r.tell)
	// The program heals what it broke before it ends: it is asked to end, and waited for.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 3 * time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	run := Run{Load: loadAverage(), Began: time.Now().UTC().Truncate(time.Second)}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", r.bin, err)
	}
	done, failed := r.follow(out, take)
	if failed != nil { // of the state, or of what was printed: no run must go uncounted
		_ = cmd.Cancel()
	}
	_ = cmd.Wait() // its exit code is looked at below
	code := cmd.ProcessState.ExitCode()
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil || code == exitInterrupted:
		return errInterrupted
	case done == 0 && (code == exitUsage || code == exitMissing): // after a run it is no matter of what there is
		return fmt.Errorf("%w: %s", errMissing, stderr.last())
	case done < n:
		run.Verdict, run.Reasons = "error", []string{fmt.Sprintf("exit code %d: %s", code, stderr.last())}
		return take(run)
	}
	return nil
}

// args is the command line that makes n runs of a row.
func (r runner) args(row Row, n int) ([]string, error) {
	scenario := row.Scenario
	if row.Text != "" {
		var err error
		if scenario, err = r.write(row); err != nil {
			return nil, err
		}
	}
	args := []string{"run", scenario, "--provider", row.Provider, "--format", "json", "--out", r.out, "--repeat", strconv.Itoa(n)}
	for _, s := range row.Set {
		args = append(args, "--set", s)
	}
	return args, nil
}

// follow takes the runs as the program prints their verdicts, until it ends.
func (r runner) follow(out io.Reader, take func(Run) error) (done int, err error) {
	d := json.NewDecoder(out)
	for start := time.Now(); ; start = time.Now() {
		var rep results.Report
		if err := d.Decode(&rep); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) {
				return done, nil
			}
			return done, fmt.Errorf("what the program printed is no verdict: %w", err)
		}
		run, interrupted := r.read(rep)
		run.Seconds = time.Since(start).Seconds()
		if interrupted {
			continue
		}
		if err := take(run); err != nil {
			return done, err
		}
		done++
	}
}

// read makes a run out of its verdict and what its env.json tells.
func (r runner) read(rep results.Report) (run Run, interrupted bool) {
	run = Run{
		Dir: rep.RunDir, Verdict: string(rep.Verdict), Reasons: rep.Reasons, Grants: rep.Judged.Grants, Counts: rep.Counts, Kept: rep.Kept,
		Load: loadAverage(), Began: time.Now().UTC().Truncate(time.Second),
	}
	if n := rep.Measures["acknowledged_elements"]; n != nil {
		run.Acknowledged = int64(*n)
	}
	if rel, err := filepath.Rel(r.top, rep.RunDir); err == nil && filepath.IsAbs(rep.RunDir) {
		run.Dir = rel
	}
	env, err := r.env(run.Dir)
	if err != nil {
		return run, false
	}
	if t, err := time.Parse(time.RFC3339Nano, env.Started); err == nil {
		run.Began = t.UTC().Truncate(time.Second)
	}
	if load := env.Host["load_before"]; load != "" {
		run.Load = load
	}
	return run, env.Interrupted
}

// env reads a run's env.json.
func (r runner) env(dir string) (results.Env, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(r.top, dir)
	}
	return results.ReadEnv(dir)
}

// versions reads from a run's env.json what it ran on.
func (r runner) versions(dir string) map[string]string {
	env, err := r.env(dir)
	if err != nil {
		return nil
	}
	v := map[string]string{}
	for _, m := range []map[string]string{env.Host, env.Cluster, env.Service} {
		for k, s := range m {
			if strings.Contains(k, "version") || strings.Contains(k, "kernel") || strings.Contains(k, "cores") {
				v[k] = s
			}
		}
	}
	maps.Copy(v, env.Libraries)
	return v
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(b))[:3], " ")
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

// Write forgets what is long past.
func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if most := 1 << 12; len(t.b) > 2*most {
		t.b = append([]byte(nil), t.b[len(t.b)-most:]...)
	}
	return len(p), nil
}

// last is the last line.
func (t *tail) last() string {
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	return lines[len(lines)-1]
}
