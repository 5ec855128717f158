package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/metrics"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/report"
)

// batch is the runs of one command line.
type batch struct {
	std     cli.Streams
	tell    *cli.Progress
	stop    cli.Interrupt
	format  string // text, json or table
	several bool   // scenarios: one that cannot be run must not keep the others from it
	explain bool
	whole   bool            // all that is known of a run is printed
	metrics *metrics.Server // nil: not asked for
	reports []results.Report
	began   int64  // when the process began; 0 after its first run
	last    string // directory of the last run
	swept   bool   // what dead runs left behind
	some    bool   // at least one run was judged
	missing bool   // at least one run was not made, for something that it needs is not there
	code    int

	followed func(verdict string) // ends the metrics of the run under way
}

// candidate is a scenario to be run, or why it cannot be.
type candidate struct {
	engine.Options
	agent  bool // its faults need the agent
	cannot error
}

// Begin tells of a run, and has it tell how far it is.
func (b *batch) Begin(j campaign.Job, o *engine.Options) {
	b.announce(j)
	if o.Began, b.began = b.began, 0; o.Began == 0 {
		o.Began = clock.Now()
	}
	b.sweep(*o)
	o.Progress, b.followed = b.tell.Update, func(string) {}
	if b.metrics != nil {
		b.followed = follow(b.metrics, o)
	}
}

func (b *batch) announce(j campaign.Job) {
	for _, line := range j.Title {
		b.tell.Say("%s", line)
	}
}

// End shows the verdict of a run. Whatever comes of it, there is a report.
func (b *batch) End(j campaign.Job, r *campaign.Result) error {
	if j.Cannot != nil { // it did not begin
		b.announce(j)
	}
	b.tell.Finish()
	code := cli.ExitCode(r.Err)
	b.fail(r.Err)
	switch {
	case r.NotMade != "": // nothing ran, so there is nothing to judge
		if r.At != "" {
			b.tell.Say("what the nodes wrote is in %s", cli.Shorten(filepath.Join(r.At, results.DirLogs)))
		}
		b.notRun(j.Options, code, r.Err)
	default:
		code = cli.Worse(code, b.judged(r))
	}
	if r.NotMade == "" || code != cli.CodeMissing { // close tells what that means beside others
		b.code = cli.Worse(b.code, code)
	}
	if b.followed != nil {
		b.followed(string(r.Verdict))
		b.followed = nil
	}
	return nil
}

// sweep removes what dead runs left behind, once: what this command leaves behind is its own to remove.
func (b *batch) sweep(o engine.Options) {
	if b.swept {
		return
	}
	b.swept = true
	swept, err := cluster.Sweep(b.stop.Ctx, cluster.SweepOptions{Log: o.Log, Mechanisms: mechanisms.All()})
	if err != nil {
		o.Log.Warn("what dead runs left behind could not be removed", "error", err)
	}
	if !swept.Empty() {
		b.tell.Say("removed what dead runs left behind: %v", swept)
	}
}

// notRun reports a run that was not made. Where it is the only one, the message alone is told.
func (b *batch) notRun(o engine.Options, code int, err error) {
	b.missing = b.missing || code == cli.CodeMissing
	if err == nil || !b.several && code == cli.CodeMissing {
		return
	}
	if werr := b.show(results.NotRun(checkers.All(), o.Scenario, o.Provider.Name(), err.Error())); werr != nil {
		b.fail(werr)
	}
}

// show prints a report and keeps it for the table.
func (b *batch) show(rep results.Report) error {
	b.reports = append(b.reports, rep)
	switch b.format {
	case "json":
		return cli.WriteJSON(b.std.Out, rep)
	case "table":
		b.tell.Say("%s: %s", rep.Scenario, rep.Verdict)
		return nil
	}
	return report.Text(b.std.Out, rep, cli.Manner(b.std.Out, b.whole)...)
}

// judged draws the report of a run, and prints its verdict.
func (b *batch) judged(r *campaign.Result) int {
	b.last = r.At
	if r.Unjudged != nil {
		b.fail(r.Unjudged)
		if r.Report.Schema != "" {
			b.reports = append(b.reports, r.Report)
		}
		return cli.ExitCode(r.Unjudged)
	}
	b.some = true
	if err := cli.DrawReport(r.At, r.Report); err != nil {
		b.fail(err) // the verdict stands without its pictures
	}
	err := b.show(r.Report)
	if err == nil && b.explain {
		err = cli.Explain(b.std.Out, r.At, r.Report)
	}
	if err != nil {
		b.fail(err)
		return cli.ExitCode(err)
	}
	return cli.VerdictCode(r.Verdict)
}

func (b *batch) fail(err error) { cli.Complain(b.tell, err) }

// close prints what belongs to all runs together, and returns the exit code as an error. Where one of several
// scenarios could not be run, the batch is inconclusive; where none could be, something needed is missing.
func (b *batch) close() error {
	switch {
	case b.missing && (!b.several || !b.some):
		b.code = cli.Worse(b.code, cli.CodeMissing)
	case b.missing:
		b.code = cli.Worse(b.code, cli.CodeInconclusive)
	}
	if err := b.table(); err != nil {
		return err
	}
	if b.last != "" && b.format == "text" {
		page := filepath.Join(b.last, results.FileReport)
		if _, err := os.Stat(page); err == nil {
			fmt.Fprintf(b.std.Out, "report  %s\n", cli.Shorten(page))
		}
		fmt.Fprintln(b.std.Out, cli.Shorten(b.last))
	}
	if b.code != cli.CodeMet {
		return cli.Exit{Code: b.code}
	}
	return nil
}

// table prints the row of each scenario, where there is more than one run. Standard output is a program's where it reads objects there.
func (b *batch) table() error {
	switch {
	case b.format == "table" && len(b.reports) > 0:
		return report.Matrix(b.std.Out, b.reports, cli.Manner(b.std.Out, false)...)
	case len(b.reports) < 2:
		return nil
	case b.format == "text":
		fmt.Fprintln(b.std.Out)
		return report.Matrix(b.std.Out, b.reports, cli.Manner(b.std.Out, false)...)
	}
	var plain bytes.Buffer
	err := report.Matrix(&plain, b.reports)
	b.tell.Say("\n%s", strings.TrimSuffix(plain.String(), "\n"))
	return err
}
