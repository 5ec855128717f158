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
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/longrun"
	"github.com/lockquake/lockquake/results"
)

// The exit codes that are not verdicts.
const exitUsage, exitMissing, exitInterrupted = 2, 3, 130

// runner runs scenarios with the built program, as a user would, at the top of the tree. One process makes the runs
// of all rows, and keeps clean servers between them.
type runner struct {
	bin    string // the program
	commit string // it was built from
	tell   io.Writer
	under  *process // nil: none is running
}

// process is the running program.
type process struct {
	cmd     *exec.Cmd
	jobs    io.WriteCloser
	answers *json.Decoder
	said    bytes.Buffer // standard error so far
}

// job and answer are the input and output of the program, in the form of `run -`. An answer is the verdict of a run
// or, with Runs, the end of a job.
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

// bring makes the runs that a row still lacks. A program that ends without a verdict counts as a run that did not
// pass. An interrupted run does not count.
func (r *runner) bring(ctx context.Context, row Row, rec *record) error {
	n := row.Count - len(rec.runs[row.ID])
	if n <= 0 {
		return nil
	}
	fmt.Fprintf(r.tell, "soak: %s, %d of %d runs done\n", row.ID, row.Count-n, row.Count)
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
	interrupted := fmt.Errorf("%s: interrupted; finished runs are kept, start again to continue", row.ID)
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

// start starts the program, unless it is running.
func (r *runner) start(ctx context.Context) error {
	if r.under != nil {
		return nil
	}
	p := &process{cmd: longrun.Command(ctx, r.bin, "run", "-", "--format", "json", "--out", ".soak/runs")}
	p.cmd.Stderr = io.MultiWriter(&p.said, r.tell)
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

// end ends the program, which stops its servers.
func (r *runner) end() {
	if r.under != nil {
		_ = r.under.jobs.Close()
		_ = r.under.cmd.Wait() // every job was answered, or the reason is in the record
		r.under = nil
	}
}

// died returns why the program ended before it had answered.
func (r *runner) died() (code int, why string) {
	p := r.under
	r.end()
	said := strings.Split(strings.TrimSpace(p.said.String()), "\n")
	return p.cmd.ProcessState.ExitCode(), said[len(said)-1]
}

// job returns the job that makes n runs of a row.
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

// recordError is an error of the record: no run must go uncounted.
type recordError struct{ error }

// follow records the runs of a row as the program prints their verdicts, until the end of the job. It returns in
// begun the start time of a run without a verdict.
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
		if run.Job = row.ID; run.Dir == "" { // it was not made; the end of the job says why
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
