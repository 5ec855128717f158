package run

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
)

// jobLine is a job of `run -`: one line of standard input.
type jobLine struct {
	Job      string   `json:"job"`      // repeated in the answer
	Scenario string   `json:"scenario"` // a name, a pattern or a file, as on the command line
	Set      []string `json:"set"`      // applied after those of the command line
	Provider string   `json:"provider"` // "": as on the command line
	Repeat   int      `json:"repeat"`   // 0: 1
}

// jobDone is printed after the verdicts of a job.
type jobDone struct {
	Job   string `json:"job"`
	Runs  int    `json:"runs"`            // with a verdict
	Code  int    `json:"code"`            // exit code of `run` with this job alone
	Error string `json:"error,omitempty"` // why some runs were not made
}

// jobsPlan makes the runs of jobs as they arrive. The next job is read when the previous one is done.
type jobsPlan struct {
	*runs
	lines <-chan []byte
	nodes map[string]*nodes.Source // by provider

	job   jobLine  // the current job
	under *runPlan // its runs; nil if there is no current job
	first int      // index of its first run among all results
}

// maxLine is the maximum length of a job in bytes. A scenario has at most a quarter of it.
const maxLine = 1 << 20

// linesOf returns the lines of a reader, until its end or the end of ctx. A read error is passed to failed and ends
// the lines.
func linesOf(ctx context.Context, from io.Reader, failed func(error)) <-chan []byte {
	out := make(chan []byte)
	go func() {
		defer close(out)
		s := bufio.NewScanner(from)
		s.Buffer(nil, maxLine)
		for s.Scan() {
			select {
			case out <- bytes.Clone(s.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		if err := s.Err(); err != nil {
			failed(fmt.Errorf("run -: standard input: %w", err))
		}
	}()
	return out
}

// Next returns the next run of the current job, or the first run of the next job.
func (p *jobsPlan) Next(done []campaign.Result) (j campaign.Job, ok bool) {
	for {
		if p.under != nil {
			if j, ok = p.under.Next(done[p.first:]); ok {
				return j, true
			}
			p.end(done[p.first:])
		}
		select {
		case line, more := <-p.lines:
			if !more {
				return j, false
			}
			p.begin(line, len(done))
		case <-p.Stop.Ctx.Done():
			return j, false
		}
	}
}

// begin reads a job whose first run will have the index results. A job that cannot run is answered at once.
func (p *jobsPlan) begin(line []byte, results int) {
	p.job, p.first = jobLine{}, results
	list, err := p.read(line)
	if err != nil {
		p.answer(jobDone{Job: p.job.Job, Code: cli.ExitCode(err), Error: cli.InOneLine(err)})
		return
	}
	plan := p.flags.planOf(list, max(1, p.job.Repeat))
	p.under = &plan
}

// read parses the line of a job and resolves its scenarios.
func (p *jobsPlan) read(line []byte) ([]candidate, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&p.job); err != nil {
		return nil, cli.Usagef("run -: %s: %v", beginningOf(line), err)
	}
	if p.job.Scenario == "" || p.job.Repeat < 0 {
		return nil, cli.Usagef("run -: %s: a job needs a scenario and at least one run", beginningOf(line))
	}
	provider := cmp.Or(p.job.Provider, p.flags.nodes.Provider)
	nodes := p.nodes[provider]
	if nodes == nil {
		flags := p.flags.nodes
		flags.Provider = provider
		var err error
		if nodes, err = flags.Read(); err != nil {
			return nil, err
		}
		p.nodes[provider] = nodes
	}
	set := slices.Concat(p.flags.set, p.job.Set)
	list, err := p.flags.prepare(p.Stop.Ctx, nodes, []string{p.job.Scenario}, set, p.Tell)
	if err == nil && len(list) == 1 {
		err = list[0].cannot
	}
	return list, err
}

// beginningOf returns the beginning of a line, for a message.
func beginningOf(line []byte) string {
	const most = 80
	if len(line) > most {
		return fmt.Sprintf("%q...", line[:most])
	}
	return fmt.Sprintf("%q", line)
}

// end answers a job after its last run.
func (p *jobsPlan) end(done []campaign.Result) {
	d := jobDone{Job: p.job.Job}
	for _, r := range done {
		switch {
		case r.NotMade == "":
			d.Runs, d.Code = d.Runs+1, cli.Worse(d.Code, cli.VerdictCode(r.Verdict))
		case r.Err == nil: // it did not fit into the budget
			d.Error, d.Code = r.NotMade, cli.Worse(d.Code, cli.CodeInconclusive)
		default:
			d.Error, d.Code = r.NotMade, cli.Worse(d.Code, cli.ExitCode(r.Err))
		}
	}
	p.answer(d)
	p.under, p.Reports = nil, nil
}

func (p *jobsPlan) answer(d jobDone) {
	p.Code = cli.Worse(p.Code, d.Code)
	if err := cli.WriteJSON(p.Std.Out, d); err != nil {
		p.Fail(err)
	}
}
