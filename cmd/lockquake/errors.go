package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// The exit codes.
const (
	codeMet          = 0
	codeFailed       = 1
	codeUsage        = 2
	codeMissing      = 3
	codeInconclusive = 4
	codeInterrupted  = 130
)

// exit is an exit code whose reason was told already, such as a verdict.
type exit struct{ code int }

// Error names the code; nobody reads it.
func (e exit) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// usagef makes an error of the command line.
func usagef(format string, args ...any) error {
	return engine.UsageError{Text: fmt.Sprintf(format, args...)}
}

// flagValues says what a flag of each type takes; a flag of any text has none.
var flagValues = map[string]string{
	"bool": "true or false", "int": "a whole number", "uint64": "a whole number from 0 on", "stringSlice": "a list of words with commas between them", "duration": "a duration with its unit, such as 300ms, 2s or 10m",
}

// wrongFlag says what is wrong with a flag in words of the command line.
func wrongFlag(c *cobra.Command, err error) error {
	var (
		unknown *pflag.NotExistError
		unfit   *pflag.InvalidValueError
	)
	text := err.Error() + ";"
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		text = fmt.Sprintf("there is no flag --%s;", unknown.GetSpecifiedName())
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		if near := scenarios.Closest(unknown.GetSpecifiedName(), known, 1); len(near) > 0 {
			text += fmt.Sprintf(" did you mean --%s?", near[0])
		}
	case errors.As(err, &unfit):
		text = fmt.Sprintf("--%s: %q is not %s;", unfit.GetFlag().Name, unfit.GetValue(), flagValues[unfit.GetFlag().Value.Type()])
	}
	return usagef("%s `%s --help` lists the flags", text, c.CommandPath())
}

// exitCode maps an error to the exit code. A run that broke without an answer is inconclusive: 1 is kept for an
// expectation that was held against a run and failed.
func exitCode(err error) int {
	var (
		told        exit
		usage       engine.UsageError
		missing     engine.MissingError
		unavailable chaos.Unavailable
		scenario    *scenarios.Error
	)
	switch {
	case err == nil:
		return codeMet
	case errors.As(err, &told):
		return told.code
	case errors.As(err, &usage), errors.As(err, &scenario):
		return codeUsage
	case errors.As(err, &missing), errors.As(err, &unavailable):
		return codeMissing
	case errors.Is(err, syscall.EMFILE):
		return codeMissing
	case errors.Is(err, history.ErrCorrupt):
		return codeInconclusive
	case errors.Is(err, fs.ErrNotExist):
		return codeUsage
	}
	return codeInconclusive
}

// complain prints an error for people, unless it was told already.
func complain(w io.Writer, err error) {
	var told exit
	if err == nil || errors.As(err, &told) {
		return
	}
	text := strings.TrimSuffix(err.Error(), "\n")
	if out := syscall.EMFILE.Error(); strings.HasSuffix(text, out) { // of this process, or of one that it started, which has as many
		text += fmt.Sprintf(": ulimit -n is %d, raise it", proc.OpenFiles())
	}
	fmt.Fprintln(w, "lockquake: "+text)
}

// verdictCode is the exit code of a judged run.
func verdictCode(v results.Verdict) int {
	switch v {
	case results.Pass:
		return codeMet
	case results.Fail:
		return codeFailed
	}
	return codeInconclusive
}

// worse returns the exit code to end with after two runs: an interruption, then what is missing or wrong, then a
// failure, then no answer.
func worse(a, b int) int {
	order := []int{codeMet, codeInconclusive, codeFailed, codeUsage, codeMissing, codeInterrupted}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// noArgs refuses any argument.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("`%s` takes no argument, and there is %q", c.CommandPath(), args[0])
	}
	return nil
}

// oneRun refuses anything but one argument, the directory of a run.
func oneRun(c *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("`%s` takes one argument, the directory of a run such as runs/etcd-holder-pause/latest; there are %d",
			c.CommandPath(), len(args))
	}
	return nil
}
