package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockquake/lockquake/results"
)

// The exit codes of `lockquake run` that are no verdict.
const exitUsage, exitMissing, exitInterrupted = 2, 3, 130

// runner runs scenarios by the built program, as a user would, at the top of the tree.
type runner struct {
	bin    string // the program
	commit string // that it is built of
	tell   io.Writer
}

// bring makes the runs that a row still lacks, in one process, which keeps clean servers between them. A program
// that ends without a verdict is a run that did not pass. A run that was interrupted does not count.
func (r *runner) bring(ctx context.Context, row Row, rec *record) error {
	n := row.Count - len(rec.runs[row.ID])
	if n <= 0 {
		return nil
	}
	fmt.Fprintf(r.tell, "soak: %s, %d of %d runs are done\n", row.ID, row.Count-n, row.Count)
	args, err := row.args(n)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Stderr = io.MultiWriter(&stderr, r.tell)
	// The program heals what it broke before it ends: it is asked to end, once, and waited for.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 3 * time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", r.bin, err)
	}
	done, last, failed := r.follow(row, out, rec)
	if failed != nil { // of the record, or of what was printed: no run must go uncounted
		_ = cmd.Cancel()
	}
	_ = cmd.Wait() // its exit code is looked at below
	code := cmd.ProcessState.ExitCode()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	why := lines[len(lines)-1]
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil || code == exitInterrupted:
		return fmt.Errorf("%s: interrupted; what is done is kept, start again to go on", row.ID)
	case done == 0 && (code == exitUsage || code == exitMissing): // what could be run once is not missing
		last.Verdict, last.Reasons = missing, []string{why}
		return rec.add(last)
	case done < n:
		last.Verdict, last.Reasons = broken, []string{fmt.Sprintf("exit code %d: %s", code, why)}
		return rec.add(last)
	}
	return nil
}

// args is the command line that makes n runs of a r.
func (r Row) args(n int) ([]string, error) {
	scenario := r.Scenario
	if r.Text != "" {
		scenario = ".soak/scenarios/" + r.Scenario + ".yaml"
		if err := os.MkdirAll(".soak/scenarios", 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(scenario, []byte(r.Text), 0o644); err != nil {
			return nil, err
		}
	}
	args := []string{"run", scenario, "--provider", r.Provider, "--format", "json", "--out", ".soak/runs", "--repeat", strconv.Itoa(n)}
	for _, s := range r.Set {
		args = append(args, "--set", s)
	}
	return args, nil
}

// follow records the runs as the program prints their verdicts, until it ends. last is the run that got no verdict.
func (r *runner) follow(row Row, out io.Reader, rec *record) (done int, last Run, err error) {
	for d := json.NewDecoder(out); ; {
		start := time.Now()
		begun := Run{Row: row.ID, Commit: r.commit, Date: start.UTC().Truncate(time.Second)}
		run := begun
		if err := d.Decode(&run); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = nil
			}
			return done, begun, err
		}
		run.Seconds = time.Since(start).Seconds()
		if env, err := results.ReadEnv(run.Dir); err == nil {
			if env.Interrupted {
				continue
			}
			run.Load = env.Host["load_before"]
			run.Machine = fmt.Sprintf("%s cores, kernel %s", env.Host["cores"], env.Host["kernel"])
		}
		if err := rec.add(run); err != nil {
			return done, begun, err
		}
		done++
	}
}
