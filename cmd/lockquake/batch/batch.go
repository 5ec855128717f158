// Package batch shows the runs that a verb makes by internal/campaign, and opens their journal.
package batch

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

// Batch holds the runs of one command line.
type Batch struct {
	Std     cli.Streams
	Tell    *cli.Progress
	Stop    cli.Interrupt
	Format  string // text, json or table
	Several bool   // several scenarios: one that cannot run must not stop the others
	Explain bool
	Whole   bool            // print everything that is known of a run
	Metrics *metrics.Server // nil: not requested
	Reports []results.Report
	Began   int64  // when the process began; 0 after its first run
	Last    string // directory of the last run
	swept   bool   // leftovers of dead runs were removed
	Some    bool   // at least one run was judged
	missing bool   // at least one run was not made because something it needs is missing
	Code    int

	followed func(verdict string) // ends the metrics of the run under way
}

// Begin announces a run and has it report its progress.
func (b *Batch) Begin(j campaign.Job, o *engine.Options) {
	b.announce(j)
	if o.Began, b.Began = b.Began, 0; o.Began == 0 {
		o.Began = clock.Now()
	}
	b.Sweep(*o)
	o.Progress, b.followed = b.Tell.Update, func(string) {}
	if b.Metrics != nil {
		b.followed = Follow(b.Metrics, o)
	}
}

func (b *Batch) announce(j campaign.Job) {
	for _, line := range j.Title {
		b.Tell.Say("%s", line)
	}
}

// End shows the verdict of a run. Every run gets a report, whatever its outcome.
func (b *Batch) End(j campaign.Job, r *campaign.Result) error {
	if j.Cannot != nil { // the run did not begin
		b.announce(j)
	}
	b.Tell.Finish()
	code := cli.ExitCode(r.Err)
	b.Fail(r.Err)
	switch {
	case r.NotMade != "": // nothing ran, so there is nothing to judge
		if r.At != "" {
			b.Tell.Say("the output of the nodes is in %s", cli.Shorten(filepath.Join(r.At, results.DirLogs)))
		}
		b.notRun(j.Options, code, r.Err)
	default:
		code = cli.Worse(code, b.judged(r))
	}
	if r.NotMade == "" || code != cli.CodeMissing { // Close decides what a missing requirement means among several runs
		b.Code = cli.Worse(b.Code, code)
	}
	if b.followed != nil {
		b.followed(string(r.Verdict))
		b.followed = nil
	}
	return nil
}

// Sweep removes the leftovers of dead runs once, before the first run. It must not touch those of this command.
func (b *Batch) Sweep(o engine.Options) {
	if b.swept {
		return
	}
	b.swept = true
	swept, err := cluster.Sweep(b.Stop.Ctx, cluster.SweepOptions{Log: o.Log, Mechanisms: mechanisms.All()})
	if err != nil {
		o.Log.Warn("the leftovers of dead runs could not be removed", "error", err)
	}
	if !swept.Empty() {
		b.Tell.Say("removed the leftovers of dead runs: %v", swept)
	}
}

// notRun reports a run that was not made. If it is the only one and something is missing, only the message is shown.
func (b *Batch) notRun(o engine.Options, code int, err error) {
	b.missing = b.missing || code == cli.CodeMissing
	if err == nil || !b.Several && code == cli.CodeMissing {
		return
	}
	if werr := b.Show(results.NotRun(checkers.All(), o.Scenario, o.Provider.Name(), err.Error())); werr != nil {
		b.Fail(werr)
	}
}

// Show prints a report and keeps it for the table.
func (b *Batch) Show(rep results.Report) error {
	b.Reports = append(b.Reports, rep)
	switch b.Format {
	case "json":
		return cli.WriteJSON(b.Std.Out, rep)
	case "table":
		b.Tell.Say("%s: %s", rep.Scenario, rep.Verdict)
		return nil
	}
	return report.Text(b.Std.Out, rep, cli.Manner(b.Std.Out, b.Whole)...)
}

// judged draws the report of a run, prints its verdict, and returns the exit code.
func (b *Batch) judged(r *campaign.Result) int {
	b.Last = r.At
	if r.Unjudged != nil {
		b.Fail(r.Unjudged)
		if r.Report.Schema != "" {
			b.Reports = append(b.Reports, r.Report)
		}
		return cli.ExitCode(r.Unjudged)
	}
	b.Some = true
	if err := cli.DrawReport(r.At, r.Report); err != nil {
		b.Fail(err) // the verdict stands without its pictures
	}
	err := b.Show(r.Report)
	if err == nil && b.Explain {
		err = cli.Explain(b.Std.Out, r.At, r.Report)
	}
	if err != nil {
		b.Fail(err)
		return cli.ExitCode(err)
	}
	return cli.VerdictCode(r.Verdict)
}

// Fail prints an error of a run.
func (b *Batch) Fail(err error) { cli.Complain(b.Tell, err) }

// Close prints the summary of all runs, and returns the exit code as an error. If some of several scenarios could not
// run, the batch is inconclusive. If none could, something needed is missing.
func (b *Batch) Close() error {
	switch {
	case b.missing && (!b.Several || !b.Some):
		b.Code = cli.Worse(b.Code, cli.CodeMissing)
	case b.missing:
		b.Code = cli.Worse(b.Code, cli.CodeInconclusive)
	}
	if err := b.table(); err != nil {
		return err
	}
	if b.Last != "" && b.Format == "text" {
		page := filepath.Join(b.Last, results.FileReport)
		if _, err := os.Stat(page); err == nil {
			fmt.Fprintf(b.Std.Out, "report  %s\n", cli.Shorten(page))
		}
		fmt.Fprintln(b.Std.Out, cli.Shorten(b.Last))
	}
	if b.Code != cli.CodeMet {
		return cli.Exit{Code: b.Code}
	}
	return nil
}

// table prints one row per scenario if there is more than one run. With JSON output the table goes to the progress
// stream, because a program reads standard output.
func (b *Batch) table() error {
	switch {
	case b.Format == "table" && len(b.Reports) > 0:
		return report.Matrix(b.Std.Out, b.Reports, cli.Manner(b.Std.Out, false)...)
	case len(b.Reports) < 2:
		return nil
	case b.Format == "text":
		fmt.Fprintln(b.Std.Out)
		return report.Matrix(b.Std.Out, b.Reports, cli.Manner(b.Std.Out, false)...)
	}
	var plain bytes.Buffer
	err := report.Matrix(&plain, b.Reports)
	b.Tell.Say("\n%s", strings.TrimSuffix(plain.String(), "\n"))
	return err
}
