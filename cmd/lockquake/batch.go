package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/vbauerster/mpb/v8/cwriter"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report"
)

// batch is the runs of one command line.
type batch struct {
	std     streams
	tell    *progress
	json    bool
	reports []results.Report
	tallies []string // "k of n" of each scenario that was repeated
	began   int64    // when the process began; 0 after its first run
	last    string   // directory of the last run
	mute    bool     // a run left no report, so that the table cannot count it
	code    int
}

// repeat makes n runs of one scenario; draw says that each needs a seed of its own. It returns false when there must be
// no more runs.
func (b *batch) repeat(ctx context.Context, o engine.Options, n int, draw bool) bool {
	met, done := 0, 0
	for i := range n {
		if n > 1 {
			b.tell.say("%s, run %d of %d", o.Scenario.Name, i+1, n)
		}
		run := o
		if draw {
			s, err := o.Scenario.With([]string{fmt.Sprintf("run.seed=%d", drawSeed())})
			if err != nil {
				b.fail(err)
				return false
			}
			run.Scenario = s
		}
		code := b.once(ctx, run)
		b.code = worse(b.code, code)
		done++
		if code == codeMet {
			met++
		}
		if code == codeInterrupted || code == codeMissing || code == codeUsage {
			break
		}
	}
	if n > 1 {
		b.tallies = append(b.tallies, fmt.Sprintf("%s: %d of %d met every expectation", o.Scenario.Name, met, done))
	}
	return b.code != codeInterrupted && b.code != codeMissing && b.code != codeUsage
}

// once makes one run, judges it and shows the verdict.
func (b *batch) once(ctx context.Context, o engine.Options) int {
	stop := interruptible(ctx, b.tell)
	defer stop.done()
	if o.Began, b.began = b.began, 0; o.Began == 0 {
		o.Began = clock.Now()
	}
	swept, err := cluster.Sweep(stop.ctx, cluster.SweepOptions{Log: o.Log})
	if err != nil {
		o.Log.Warn("what dead runs left behind could not be removed", "error", err)
	}
	if !swept.Empty() {
		b.tell.say("removed what dead runs left behind: %v", swept)
	}
	o.Started = time.Now()
	dir, err := engine.Run(stop.ctx, o)
	b.tell.finish()
	code := codeMet
	if err != nil {
		code = exitCode(err)
		b.fail(err)
	}
	switch {
	case dir == "":
		b.mute = true
	case code == codeMissing || code == codeUsage: // nothing ran, so there is nothing to judge
		b.mute = true
		b.tell.say("what the nodes wrote is in %s", shorten(filepath.Join(dir, results.DirLogs)))
	default:
		code = worse(code, b.judge(dir))
	}
	if stop.interrupted() {
		return codeInterrupted
	}
	return code
}

// judge reads the run back from disk, writes verdict and report, and prints them.
func (b *batch) judge(dir string) int {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	rep, err := judgeAndWrite(dir)
	b.last = dir
	if err != nil {
		b.fail(err)
		b.mute = true
		return exitCode(err)
	}
	if err := draw(dir, rep); err != nil {
		b.fail(err) // the verdict stands without its pictures
	}
	b.reports = append(b.reports, rep)
	if b.json {
		err = writeJSON(b.std.out, rep)
	} else {
		err = report.Text(b.std.out, rep, colours(b.std.out)...)
	}
	if err != nil {
		b.fail(err)
		return exitCode(err)
	}
	return verdictCode(rep.Verdict)
}

func (b *batch) fail(err error) { complain(b.tell, err) }

// close prints what belongs to all runs together, and returns the exit code as an error.
func (b *batch) close() error {
	if !b.json {
		if len(b.reports) > 1 {
			fmt.Fprintln(b.std.out)
			if err := report.Matrix(b.std.out, b.reports, colours(b.std.out)...); err != nil {
				return err
			}
		}
		if len(b.reports) < 2 || b.mute { // else the table says it
			for _, t := range b.tallies {
				fmt.Fprintln(b.std.out, t)
			}
		}
		if b.last != "" {
			fmt.Fprintln(b.std.out, shorten(b.last))
		}
	} else {
		for _, t := range b.tallies {
			b.tell.say("%s", t)
		}
	}
	if b.code != codeMet {
		return exit{code: b.code}
	}
	return nil
}

// judgeAndWrite judges a run directory and writes verdict.json into it.
func judgeAndWrite(dir string) (results.Report, error) {
	rep, err := results.Judge(dir)
	if err != nil {
		return rep, err
	}
	return rep, results.WriteReport(dir, rep)
}

// draw writes the report for people. The charts are drawn by a library that panics at figures that it cannot place.
func draw(dir string, rep results.Report) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: the report could not be drawn: %v", dir, p)
		}
	}()
	return report.Write(dir, rep)
}

// colours are used where a person reads, and may be switched off as usual.
func colours(w io.Writer) []report.Option {
	if f, ok := w.(*os.File); ok && os.Getenv("NO_COLOR") == "" && cwriter.IsTerminal(int(f.Fd())) {
		return []report.Option{report.Colour()}
	}
	return nil
}

// shorten returns a path relative to the working directory where it lies below it.
func shorten(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(wd, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
