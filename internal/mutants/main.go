// Mutants runs the tests against wrong variants of the code that decides a verdict: the list in mutants.yaml. A
// mutant that no test notices is a gap in the tests. `go test -overlay` puts each in place of its file; the work tree
// stays unchanged.
package main

import (
	"context"
	_ "embed" // the list
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// least is the share of mutants that the tests must kill.
const least = 0.95

// memory bounds each process, in bytes of address space: a mutant that keeps all its input fails before the machine
// runs out of memory.
const memory = 8 << 30

// list is the list of mutants to try. found lists those of gremlins' mutants that no test can notice, with the
// reason.
var (
	//go:embed mutants.yaml
	list []byte
	//go:embed found.yaml
	found []byte
)

func main() {
	only := flag.String("only", "", "only mutants whose file, declaration or reason contains this")
	again := flag.Bool("again", false, "only the survivors of the last time; the others still count as killed")
	gremlins := flag.String("gremlins", "",
		"this program finds mutants in the folders given as arguments; they are tried instead of the list")
	jobs := flag.Int("jobs", runtime.GOMAXPROCS(0), "number of parallel runs")
	patience := flag.Duration("timeout", timeout, "time limit for the tests of a package; a busy machine needs more")
	flag.Parse()
	if err := run(options{*only, *again, *gremlins, flag.Args(), *jobs, *patience, os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	only  string
	again bool

	gremlins string
	folders  []string

	jobs    int
	timeout time.Duration
	out     io.Writer
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: memory, Max: memory}); err != nil {
		return err
	}
	known, err := openCache("build/mutants/results.json")
	if err != nil {
		return err
	}
	wanted, text := least, list
	if o.gremlins != "" {
		wanted, text = 0, found // these are for reading: many do not affect a verdict
	}
	all, err := parse(".", text)
	if err == nil && o.gremlins != "" {
		all, err = generated(ctx, o.gremlins, o.folders, all)
	}
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m Mutant) bool { return !strings.Contains(m.String(), o.only) })
	b, err := newBench(".")
	if err != nil {
		return err
	}
	defer b.close()
	b.timeout = o.timeout
	if b.variants, err = newVariants(ctx, b.root, b.dir, all); err != nil {
		return err
	}
	verdicts := make([]Verdict, len(all))
	var group sync.WaitGroup
	queue := make(chan int)
	for range o.jobs {
		group.Go(func() {
			for i := range queue {
				verdicts[i] = known.verdict(all[i], o.again, func() Verdict { return b.try(ctx, all[i]) })
				fmt.Fprintf(o.out, "%-8s %s%s\n", verdicts[i].Outcome, all[i], verdicts[i].by())
			}
		})
	}
	for i := range all {
		if all[i].Equivalent == "" && ctx.Err() == nil {
			queue <- i
		}
	}
	close(queue)
	group.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%w: the results so far are in build/mutants", ctx.Err())
	}
	return tell(o.out, all, verdicts, wanted)
}

// tell prints the survivors and the share of killed mutants. It returns an error if that share is below wanted.
func tell(out io.Writer, all []Mutant, verdicts []Verdict, wanted float64) error {
	killed, unnamed, broken := 0, 0, 0
	fmt.Fprintln(out)
	for i, m := range all {
		switch {
		case m.Equivalent != "":
			fmt.Fprintf(out, "equivalent: %s: %s\n", m, m.Equivalent)
		case verdicts[i].Outcome == Killed:
			killed++
		case verdicts[i].Outcome == Survived:
			unnamed++
			fmt.Fprintf(out, "SURVIVED: %s\n\t-%s\n\t+%s\n", m, indented(m.Old), indented(m.New))
		default:
			broken++
			fmt.Fprintf(out, "BROKEN: %s: %s\n", m, verdicts[i].By)
		}
	}
	if len(all) == 0 {
		return errors.New("no mutant is chosen")
	}
	share := float64(killed) / float64(len(all))
	fmt.Fprintf(out, "%d mutants: %d killed (%.1f %%), %d equivalent, %d survived without a reason\n", len(all), killed,
		100*share,
		len(all)-killed-unnamed-broken, unnamed)
	switch {
	case broken > 0 && wanted > 0: // gremlins finds some that do not compile
		return fmt.Errorf("%d mutants cannot be tried", broken)
	case share < wanted:
		return fmt.Errorf("%.1f %% are killed; at least %.0f %% must be", 100*share, 100*wanted)
	}
	return nil
}

func indented(code string) string {
	return strings.ReplaceAll(strings.TrimSuffix(code, "\n"), "\n", "\n\t ")
}
