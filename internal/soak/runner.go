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
	"strings"
	"syscall"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/results"
)

// The exit codes that are no verdict.
const exitUsage, exitMissing, exitInterrupted = 2, 3, 130

// runner runs scenarios by the built program, as a user would, at the top of the tree. One process makes the runs of
// all rows, and keeps clean servers between them.
type runner struct {
	bin    string // the program
	commit string // that it is built of
	tell   io.Writer
	under  *process // nil: none is under way
}

// process is the program under way.
type process struct {
	cmd     *exec.Cmd
	jobs    io.WriteCloser
	answers *json.Decoder
	said    bytes.Buffer // on standard error
}

// job and answer are what goes into the program and what comes out of it, as `run -` has them. An answer is the verdict
// of a run or, with Runs, the end of a job.
type (
	job struct {
		Job      string   `json:"job"`
		Scenario string   `json:"scenario"`
		Set      []string `json:"set"`
		Provider string   `json:"provider"`
		Repeat   int      `json:"repeat"`
	}
	answer struct {
		campaign.Result
		Runs  *int   `json:"runs"`
		Code  int    `json:"code"`
		Error string `json:"error"`
	}
)

// bring makes the runs that a row still lacks. A program that ends without a verdict is a run that did not pass. A run
// that was interrupted does not count.
func (r *runner) bring(ctx context.Context, row Row, rec *record) error {
	n := row.Count - len(rec.runs[row.ID])
	if n <= 0 {
		return nil
	}
	fmt.Fprintf(r.tell, "soak: %s, %d of %d runs are done\n", row.ID, row.Count-n, row.Count)
	j, err := row.job(n)
	if err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	var ended *answer
	begun := time.Now()
	if err = json.NewEncoder(r.under.jobs).Encode(j); err == nil {
		ended, begun, err = r.follow(row, rec)
	}
	over := Run{Result: campaign.Result{Job: row.ID}, Commit: r.commit, Date: begun.UTC().Truncate(time.Second)}
	interrupted := fmt.Errorf("%s: interrupted; what is done is kept, start again to go on", row.ID)
	switch {
	case ctx.Err() != nil:
		return interrupted
	case errors.As(err, new(recordError)):
		_ = r.under.cmd.Cancel()
		return err
	case ended == nil: // it died
		code, why := r.died()
		if code == exitInterrupted {
			return interrupted
		}
		over.Verdict, over.Reasons = broken, []string{fmt.Sprintf("exit code %d: %s", code, why)}
		return rec.add(over)
	case *ended.Runs == 0 && (ended.Code == exitUsage || ended.Code == exitMissing):
		over.Verdict, over.Reasons = missing, []string{ended.Error}
		return rec.add(over)
	case ended.Error != "":
		over.Verdict, over.Reasons = broken, []string{ended.Error}
		return rec.add(over)
	}
	return nil
}

// start starts the program, unless it is under way.
func (r *runner) start(ctx context.Context) error {
	if r.under != nil {
		return nil
	}
	p := &process{cmd: exec.CommandContext(ctx, r.bin, "run", "-", "--format", "json", "--out", ".soak/runs")}
	p.cmd.Stderr = io.MultiWriter(&p.said, r.tell)
	// The program heals what it broke before it ends: it is asked to end, once, and waited for.
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGINT) }
	p.cmd.WaitDelay = 3 * time.Minute
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if p.jobs, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", r.bin, err)
	}
	p.answers, r.under = json.NewDecoder(out), p
	return nil
}

// end ends the program, which takes its servers down.
func (r *runner) end() {
	if r.under != nil {
		_ = r.under.jobs.Close()
		_ = r.under.cmd.Wait() // every job was answered, or the reason is in the record
		r.under = nil
	}
}

// died is why the program ended before it had answered.
func (r *runner) died() (code int, why string) {
	p := r.under
	r.end()
	said := strings.Split(strings.TrimSpace(p.said.String()), "\n")
	return p.cmd.ProcessState.ExitCode(), said[len(said)-1]
}

// job is what makes n runs of a row.
func (r Row) job(n int) (job, error) {
	scenario := r.Scenario
	if r.Text != "" {
		scenario = ".soak/scenarios/" + r.Scenario + ".yaml"
		if err := os.MkdirAll(".soak/scenarios", 0o755); err != nil {
			return job{}, err
		}
		if err := os.WriteFile(scenario, []byte(r.Text), 0o644); err != nil {
			return job{}, err
		}
	}
	return job{Job: r.ID, Scenario: scenario, Set: r.Set, Provider: r.Provider, Repeat: n}, nil
}

// recordError is one of the record: no run must go uncounted.
type recordError struct{ error }

// follow records the runs of a row as the program prints their verdicts, until the end of the job. begun is when the
// run began that got none.
func (r *runner) follow(row Row, rec *record) (ended *answer, begun time.Time, err error) {
	for {
		begun = time.Now()
		var a answer
		if err := r.under.answers.Decode(&a); err != nil {
			return nil, begun, err
		}
		if a.Runs != nil {
			return &a, begun, nil
		}
		run := Run{Result: a.Result, Commit: r.commit, Date: begun.UTC().Truncate(time.Second)}
		if run.Job = row.ID; run.Dir == "" { // it was not made, which the end of the job tells
			continue
		}
		run.Took = time.Since(begun).Milliseconds()
		if env, err := results.ReadEnv(run.Dir); err == nil {
			if env.Interrupted {
				continue
			}
			run.Load = env.Host["load_before"]
			run.Machine = fmt.Sprintf("%s cores, kernel %s", env.Host["cores"], env.Host["kernel"])
		}
		if err := rec.add(run); err != nil {
			return nil, begun, recordError{err}
		}
	}
}
