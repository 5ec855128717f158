package cli

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
	CodeMet          = 0
	CodeFailed       = 1
	CodeUsage        = 2
	CodeMissing      = 3
	CodeInconclusive = 4
	CodeInterrupted  = 130
)

// Exit is an exit code whose reason has already been printed, such as a verdict.
type Exit struct{ Code int }

// Error names the code; it is never printed.
func (e Exit) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Usagef returns a usage error.
func Usagef(format string, args ...any) error {
	return engine.UsageError{Text: fmt.Sprintf(format, args...)}
}

// FlagValues says what a flag of each type takes. Flags that take any text have no entry.
var FlagValues = map[string]string{
	"bool": "true or false", "int": "a whole number", "uint64": "a non-negative whole number",
	"stringSlice": "a comma-separated list of words",
	"duration":    "a duration with its unit, such as 300ms, 2s or 10m",
}

// WrongFlag rewords an error about a flag in terms of the command line.
func WrongFlag(c *cobra.Command, err error) error {
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
		text = fmt.Sprintf("--%s: %q is not %s;", unfit.GetFlag().Name, unfit.GetValue(),
			FlagValues[unfit.GetFlag().Value.Type()])
	}
	return Usagef("%s `%s --help` lists the flags", text, c.CommandPath())
}

// ExitCode maps an error to the exit code. A run that broke without an answer is inconclusive: 1 is reserved for an
// expectation that was checked and failed.
func ExitCode(err error) int {
	var (
		told        Exit
		usage       engine.UsageError
		missing     engine.MissingError
		unavailable chaos.Unavailable
		scenario    *scenarios.Error
	)
	switch {
	case err == nil:
		return CodeMet
	case errors.As(err, &told):
		return told.Code
	case errors.As(err, &usage), errors.As(err, &scenario):
		return CodeUsage
	case errors.As(err, &missing), errors.As(err, &unavailable):
		return CodeMissing
	case errors.Is(err, syscall.EMFILE):
		return CodeMissing
	case errors.Is(err, history.ErrCorrupt):
		return CodeInconclusive
	case errors.Is(err, fs.ErrNotExist):
		return CodeUsage
	}
	return CodeInconclusive
}

// Complain prints an error for people, unless it was printed already.
func Complain(w io.Writer, err error) {
	var told Exit
	if err == nil || errors.As(err, &told) {
		return
	}
	text := strings.TrimSuffix(err.Error(), "\n")
	// EMFILE: too many open files, in this process or in one that it started
	if out := syscall.EMFILE.Error(); strings.HasSuffix(text, out) {
		text += fmt.Sprintf(": ulimit -n is %d, raise it", proc.OpenFiles())
	}
	fmt.Fprintln(w, "lockquake: "+text)
}

// VerdictCode returns the exit code of a judged run.
func VerdictCode(v results.Verdict) int {
	switch v {
	case results.Pass:
		return CodeMet
	case results.Fail:
		return CodeFailed
	}
	return CodeInconclusive
}

// Worse returns the exit code for two runs together. The order is: interruption, something missing or wrong, failure,
// no answer.
func Worse(a, b int) int {
	order := []int{CodeMet, CodeInconclusive, CodeFailed, CodeUsage, CodeMissing, CodeInterrupted}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// NoArgs rejects any argument.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("`%s` takes no argument, but got %q", c.CommandPath(), args[0])
	}
	return nil
}

// VerbOnly rejects a first word that is not a verb.
func VerbOnly(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return Usagef("there is no verb %q; did you mean %q? `lockquake --help` lists them", args[0], near[0])
	}
	return Usagef("there is no verb %q; `lockquake --help` lists them", args[0])
}
