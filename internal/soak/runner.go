package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
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

// once makes one run and returns what it showed. A program that breaks down without a verdict counts as a run that did
// not pass; one that says that something needed is missing does not count.
func (r runner) once(ctx context.Context, row Row) (Run, error) {
	start := time.Now()
	run := Run{Load: loadAverage(), Began: start.UTC().Truncate(time.Second)}
	var stdout, stderr bytes.Buffer
	scenario := row.Scenario
	if row.Text != "" {
		var err error
		if scenario, err = r.write(row); err != nil {
			return run, err
		}
	}
	args := []string{"run", scenario, "--provider", row.Provider, "--format", "json", "--out", r.out}
	for _, s := range row.Set {
		args = append(args, "--set", s)
	}
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.top, &stdout, io.MultiWriter(&stderr, r.tell)
	// The program heals what it broke before it ends: it is asked to end, and waited for.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 3 * time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Run()
	run.Seconds = time.Since(start).Seconds()
	if ctx.Err() != nil || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == exitInterrupted {
		return run, errInterrupted
	}
	if cmd.ProcessState == nil {
		return run, fmt.Errorf("start %s: %w", r.bin, err)
	}
	switch code := cmd.ProcessState.ExitCode(); code {
	case exitUsage, exitMissing:
		return run, fmt.Errorf("%w: %s", errMissing, lastLine(stderr.String()))
	default:
		return r.read(run, stdout.Bytes(), fmt.Sprintf("exit code %d: %s", code, lastLine(stderr.String()))), nil
	}
}

// read fills a run from the verdict that the program printed.
func (r runner) read(run Run, verdict []byte, otherwise string) Run {
	var rep results.Report
	if err := json.Unmarshal(verdict, &rep); err != nil {
		run.Verdict, run.Reasons = "error", []string{otherwise}
		return run
	}
	run.Dir, run.Verdict, run.Reasons = rep.RunDir, string(rep.Verdict), rep.Reasons
	run.Grants, run.Counts = rep.Judged.Grants, rep.Counts
	if rel, err := filepath.Rel(r.top, rep.RunDir); err == nil && filepath.IsAbs(rep.RunDir) {
		run.Dir = rel
	}
	return run
}

// versions reads from a run's env.json what it ran on.
func (r runner) versions(dir string) map[string]string {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(r.top, dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, results.FileEnv))
	if err != nil {
		return nil
	}
	var env results.Env
	if err := json.Unmarshal(b, &env); err != nil {
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

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
