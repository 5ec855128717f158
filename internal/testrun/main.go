// Testrun runs `go test -json` with the arguments behind "--", and again with those behind each "then". It prints a
// line for each package, and all output of failed tests.
//
//	testrun [-o FILE] -- ARGS... [then ARGS...]   runs tests; FILE keeps what `go test -json` printed
//	testrun -summary FILE...                      prints the ten slowest tests and the time by package of such files
//	testrun -flaky FOLDER                         compares the runs of .ci/flaky: red tests, slow tests, times
//
// Tests must tolerate that other processes take all processors for 200 ms at any moment. If a test fails while this
// machine stalls for longer than that, testrun runs it once more and says so. Nothing else is run again.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/lockquake/lockquake/internal/wire"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("testrun", flag.ContinueOnError)
	file := flags.String("o", "build/tests.jsonl", "the file for the output of `go test -json`")
	sum := flags.Bool("summary", false, "print the slowest tests and the time by package of files")
	flaky := flags.Bool("flaky", false, "compare the runs below a folder")
	if err := flags.Parse(args); err != nil {
		return err
	}
	args = flags.Args()
	switch {
	case len(args) == 0:
		return errors.New("no arguments; see go doc ./internal/testrun")
	case *sum:
		return summary(out, args)
	case *flaky:
		return compareRuns(out, args[0])
	default:
		return runTests(out, *file, args)
	}
}

// runTests runs each group of tests and returns an error if a package failed.
func runTests(out io.Writer, file string, args []string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	all, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }()
	var watched stalls
	pulse := wire.Watch(watched.add, nil)
	defer pulse.Stop()
	failed := 0
	for _, group := range groups(args) {
		r, err := test(group, out, all)
		if err != nil {
			return err
		}
		second := func(p *pkg, name string) (*record, error) {
			again := append(timeLimit(args), "-tags", "integration", "-count", "1", "-run", pattern(name), p.name)
			return test(again, io.Discard, all)
		}
		n, err := r.judge(out, &watched, second)
		if err != nil {
			return err
		}
		failed += n
	}
	if failed > 0 {
		return fmt.Errorf("%d packages failed", failed)
	}
	return nil
}

// timeLimit returns the -timeout of the arguments: the default of go test is too short for one test of many stories.
func timeLimit(args []string) []string {
	if i := slices.Index(args, "-timeout"); i >= 0 && i+1 < len(args) {
		return slices.Clone(args[i : i+2])
	}
	return nil
}

// groups splits the arguments at each "then" into calls of `go test`, which run one after another.
func groups(args []string) [][]string {
	i := slices.Index(args, "then")
	if i < 0 {
		return [][]string{args}
	}
	return append([][]string{args[:i]}, groups(args[i+1:])...)
}

// test runs the tests, prints the packages that passed, and copies the output of go test to all. Failing tests are
// not an error.
func test(args []string, out, all io.Writer) (*record, error) {
	c := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	r := &record{}
	err = r.read(io.TeeReader(pipe, all), out)
	var exit *exec.ExitError
	if ended := c.Wait(); ended != nil && !errors.As(ended, &exit) {
		err = errors.Join(err, ended)
	} else if ended != nil && !slices.ContainsFunc(r.pkgs, func(p *pkg) bool { return p.failed }) {
		err = errors.Join(err, ended) // go test itself failed
	}
	return r, err
}
