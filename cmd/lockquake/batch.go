package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
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
	std     streams
	tell    *progress
	stop    interrupt
	format  string // text, json or table
	several bool   // scenarios: one that cannot be run must not keep the others from it
	explain bool
	whole   bool            // all that is known of a run is printed
	metrics *metrics.Server // nil: not asked for
	reports []results.Report
	began   int64  // when the process began; 0 after its first run
	last    string // directory of the last run
	swept   bool   // what dead runs left behind
	judged  bool   // at least one run was
	missing bool   // at least one run was not made, for something that it needs is not there
	code    int
}

// candidate is a scenario to be run, or why it cannot be.
type candidate struct {
	engine.Options
	agent  bool // its faults need the agent
	cannot error
}

// repeat makes n runs of one scenario; draw says that each needs a seed of its own. It returns false when there must be
// no more runs.
func (b *batch) repeat(o engine.Options, n int, draw bool) bool {
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
		switch code := b.once(run); {
		case code == codeMissing && b.several:
			return true // with the others
		case code == codeInterrupted || code == codeMissing || code == codeUsage:
			b.code = worse(b.code, code)
			return false
		default:
			b.code = worse(b.code, code)
		}
	}
	return true
}

// end ends the servers that were kept for a run that did not come.
func (b *batch) end(kept *engine.KeptServers) {
	if err := kept.Close(b.stop.ctx); err != nil {
		b.fail(err)
		b.code = worse(b.code, exitCode(err))
	}
}

// once makes one run, judges it and shows the verdict. Whatever comes of it, there is a report.
func (b *batch) once(o engine.Options) int {
	if b.stop.interrupted() { // between two runs
		return codeInterrupted
	}
	if o.Began, b.began = b.began, 0; o.Began == 0 {
		o.Began = clock.Now()
	}
	b.sweep(o)
	end, before := func(string) {}, len(b.reports)
	if b.metrics != nil {
		end = follow(b.metrics, &o)
	}
	defer func() {
		verdict := ""
		if len(b.reports) > before {
			verdict = string(b.reports[before].Verdict)
		}
		end(verdict)
	}()
	o.Started = time.Now()
	dir, err := engine.Run(b.stop.ctx, o)
	b.tell.finish()
	code := codeMet
	if err != nil {
		code = exitCode(err)
		b.fail(err)
	}
	switch {
	case code == codeMissing || code == codeUsage || dir == "": // nothing ran, so there is nothing to judge
		if dir != "" {
			b.tell.say("what the nodes wrote is in %s", shorten(filepath.Join(dir, results.DirLogs)))
		}
		b.notRun(o, code, err)
	default:
		code = worse(code, b.judge(dir))
	}
	if b.stop.interrupted() {
		return codeInterrupted
	}
	return code
}

// sweep removes what dead runs left behind, once: what this command leaves behind is its own to remove.
func (b *batch) sweep(o engine.Options) {
	if b.swept {
		return
	}
	b.swept = true
	swept, err := cluster.Sweep(b.stop.ctx, cluster.SweepOptions{Log: o.Log, Mechanisms: mechanisms.All()})
	if err != nil {
		o.Log.Warn("what dead runs left behind could not be removed", "error", err)
	}
	if !swept.Empty() {
		b.tell.say("removed what dead runs left behind: %v", swept)
	}
}

// cannot tells of a scenario that cannot be run here.
func (b *batch) cannot(o engine.Options, err error) {
	b.fail(err)
	b.notRun(o, exitCode(err), err)
}

// notRun reports a run that was not made. Where it is the only one, the message alone is told.
func (b *batch) notRun(o engine.Options, code int, err error) {
	b.missing = b.missing || code == codeMissing
	if err == nil || !b.several && code == codeMissing {
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
		return writeJSON(b.std.out, rep)
	case "table":
		b.tell.say("%s: %s", rep.Scenario, rep.Verdict)
		return nil
	}
	return report.Text(b.std.out, rep, manner(b.std.out, b.whole)...)
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
		if rep.Schema != "" {
			b.reports = append(b.reports, rep)
		}
		return exitCode(err)
	}
	b.judged = true
	if err := draw(dir, rep); err != nil {
		b.fail(err) // the verdict stands without its pictures
	}
	err = b.show(rep)
	if err == nil && b.explain {
		err = explain(b.std.out, dir, rep)
	}
	if err != nil {
		b.fail(err)
		return exitCode(err)
	}
	return verdictCode(rep.Verdict)
}

func (b *batch) fail(err error) { complain(b.tell, err) }

// close prints what belongs to all runs together, and returns the exit code as an error. Where one of several
// scenarios could not be run, the batch is inconclusive; where none could be, something needed is missing.
func (b *batch) close() error {
	switch {
	case b.missing && (!b.several || !b.judged):
		b.code = worse(b.code, codeMissing)
	case b.missing:
		b.code = worse(b.code, codeInconclusive)
	}
	if err := b.table(); err != nil {
		return err
	}
	if b.last != "" && b.format == "text" {
		page := filepath.Join(b.last, results.FileReport)
		if _, err := os.Stat(page); err == nil {
			fmt.Fprintf(b.std.out, "report  %s\n", shorten(page))
		}
		fmt.Fprintln(b.std.out, shorten(b.last))
	}
	if b.code != codeMet {
		return exit{code: b.code}
	}
	return nil
}

// table prints the row of each scenario, where there is more than one run. Standard output is a program's where it reads objects there.
func (b *batch) table() error {
	switch {
	case b.format == "table" && len(b.reports) > 0:
		return report.Matrix(b.std.out, b.reports, manner(b.std.out, false)...)
	case len(b.reports) < 2:
		return nil
	case b.format == "text":
		fmt.Fprintln(b.std.out)
		return report.Matrix(b.std.out, b.reports, manner(b.std.out, false)...)
	}
	var plain bytes.Buffer
	err := report.Matrix(&plain, b.reports)
	b.tell.say("\n%s", strings.TrimSuffix(plain.String(), "\n"))
	return err
}

// judgeAndWrite judges a run directory and writes verdict.json into it.
func judgeAndWrite(dir string) (results.Report, error) {
	rep, err := results.Judge(dir, checkers.All())
	if err != nil {
		return rep, err
	}
	return rep, results.WriteReport(dir, rep)
}

// draw writes the report for people.
func draw(dir string, rep results.Report) error {
	return unlessPanic(dir, func() error { return report.Write(dir, rep) })
}

// unlessPanic calls what draws a page. Charts are drawn by a library that panics at figures that it cannot place.
func unlessPanic(where string, page func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: the report could not be drawn: %v", where, p)
		}
	}()
	return page()
}

// explain tells in plain words what happened in a run.
func explain(w io.Writer, dir string, rep results.Report) error {
	var plain bytes.Buffer
	if err := report.Explain(&plain, dir, rep); err != nil {
		return err
	}
	return report.Fold(w, "\n"+plain.String(), manner(w, false)...)
}

// manner says how to write: folded at the width of a terminal, and there in colours, which may be switched off as usual.
func manner(w io.Writer, whole bool) []report.Option {
	var out []report.Option
	if whole {
		out = append(out, report.Whole())
	}
	p, ok := w.(*printed)
	if !ok || p.terminal() == nil {
		return out
	}
	if os.Getenv("NO_COLOR") == "" {
		out = append(out, report.Colour(p.escape))
	}
	if n := terminalWidth(w); n > 0 {
		out = append(out, report.Width(n))
	}
	return out
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

// sameMaker refuses to go on with what another command, version or machine began; the first of two is what was.
func sameMaker(what string, commands, versions [2]string, was, is map[string]string) error {
	switch {
	case arguments(commands[0]) != arguments(commands[1]):
		return usagef("--resume: the command is another one; that %s was made by: %s", what, commands[0])
	case versions[0] != versions[1]:
		return usagef("--resume: that %s was made by version %s, and this is %s", what, versions[0], versions[1])
	}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if a, b := was[key], is[key]; a != b {
			return usagef("--resume: that %s was made on another machine: %s was %s, and is %s", what, key, a, b)
		}
	}
	return nil
}

// arguments are what stands behind the program, however that was started.
func arguments(command string) string {
	_, rest, _ := strings.Cut(command, " ")
	return rest
}

// flagWords are the flags that were given, as a shell takes them, but for some.
func flagWords(flags *pflag.FlagSet, without ...string) (words []string) {
	flags.Visit(func(fl *pflag.Flag) {
		if slices.Contains(without, fl.Name) {
			return
		}
		values := []string{fl.Value.String()}
		if list, ok := fl.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if fl.Value.Type() == "bool" { // which takes no word behind it
				words = append(words, "--"+fl.Name+"="+v)
				continue
			}
			words = append(words, "--"+fl.Name, quoted(v))
		}
	})
	return words
}
