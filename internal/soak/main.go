// Soak makes the figures that take hours: each story as often as its row says. It keeps what it has done in docs/soak/, so that it
// can be interrupted at any time and goes on where it was; figures whose code has not changed since are kept. After each
// row it writes docs/soak.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := soak(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// options is what soak was told.
type options struct {
	runner runner
	state  string // folder of the states
	page   string // where the table goes
	rows   []Row
	only   string              // patterns of the rows to do, with commas between
	most   int                 // runs of each row; 0: as many as it asks for
	keys   map[string]string   // of what each row depends on, by its id, as it was at the start
	paths  map[string][]string // of the files among it
}

// soak reads the flags and does the rows.
func soak(ctx context.Context, args []string, tell io.Writer) error {
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	bin := flags.String("bin", "", "the lockquake program; built with make when empty")
	only := flags.String("only", "*", "do the rows whose scenario or id (as -list prints it) matches this pattern, or one of several with commas between, in the order of the page; the page keeps the others")
	most := flags.Int("runs", 0, "make at most this many runs of each row, and leave the others for another time; 0: all")
	rewrite := flags.Bool("page", false, "write the page out of what is done, and run nothing")
	anew := flags.String("anew", "", "put the runs of the rows that -only names aside, so that they begin anew; the page tells of them, and for this reason. Nothing is run")
	list := flags.Bool("list", false, "print the rows and what is done of them, and run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	top, err := gitLines(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	o := options{
		runner: runner{bin: *bin, top: top[0], out: filepath.Join(top[0], ".soak", "runs"), tell: tell},
		state:  filepath.Join(top[0], "docs", "soak"), page: filepath.Join(top[0], "docs", "soak.md"), rows: allRows(),
		only: *only, most: *most,
	}
	if err := o.look(); err != nil {
		return err
	}
	if *anew != "" {
		return o.anew(*anew)
	}
	if *list {
		return o.list(os.Stdout)
	}
	if *rewrite {
		return o.write()
	}
	if *bin == "" {
		o.runner.bin = filepath.Join(top[0], "build", "lockquake")
		build := exec.CommandContext(ctx, "make", "-C", top[0], "build")
		build.Stdout, build.Stderr = tell, tell
		if err := build.Run(); err != nil {
			return fmt.Errorf("make build: %w", err)
		}
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	for _, row := range chosen {
		if err := o.do(ctx, row); err != nil {
			return err
		}
	}
	return o.verdict()
}

// chosen are the rows that the patterns name; a pattern that names none is an error.
func (o options) chosen() ([]Row, error) {
	named := map[string]bool{}
	for _, pattern := range strings.Split(o.only, ",") {
		found := false
		for _, row := range o.rows {
			ok, err := row.Matches(pattern)
			if err != nil {
				return nil, fmt.Errorf("-only %s: %w", pattern, err)
			}
			if ok {
				found, named[row.ID()] = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("-only %s: no row is called so; -list prints them", pattern)
		}
	}
	var out []Row
	for _, row := range o.rows {
		if named[row.ID()] {
			out = append(out, row)
		}
	}
	return out, nil
}

// look takes down what each row depends on before anything is built: what is edited meanwhile is not in the program that
// makes the figures.
func (o *options) look() error {
	all, err := listPackages(o.runner.top)
	if err != nil {
		return err
	}
	faults, err := readParts(filepath.Join(o.runner.top, faultsFolder))
	if err != nil {
		return err
	}
	files := newWorktree(o.runner.top)
	o.keys, o.paths = map[string]string{}, map[string][]string{}
	for _, row := range o.rows {
		s, err := row.scenario()
		if err != nil {
			return fmt.Errorf("%s: %w", row.ID(), err)
		}
		n := all.of(row)
		paths := row.paths(n)
		code, err := faults.of(faultsOf(s))
		if err != nil {
			return fmt.Errorf("%s: %w", row.ID(), err)
		}
		others := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == faultsFolder+"/*" })
		if o.keys[row.ID()], err = files.key(others, append(n.modules, string(s.Text), code)); err != nil {
			return err
		}
		if row.File != "" {
			paths = append(paths, "scenarios/"+row.File)
		}
		o.paths[row.ID()] = paths
	}
	return nil
}

// do brings one row to its number of runs, and writes the page.
func (o options) do(ctx context.Context, row Row) error {
	state, file, err := o.load(row)
	if err != nil {
		return err
	}
	n := row.Count - state.done(row)
	if o.most > 0 {
		n = min(n, o.most)
	}
	if n <= 0 {
		return o.write()
	}
	fmt.Fprintf(o.runner.tell, "soak: %s, %d of %d runs are done, %d come now\n", row.ID(), state.done(row), row.Count, n)
	err = o.runner.several(ctx, row, n, func(run Run) error {
		if len(state.Runs) == 0 {
			state.Versions = o.runner.versions(run.Dir)
			if state.Commit, err = commit(o.runner.top, o.paths[row.ID()]); err != nil {
				return err
			}
		}
		state.Runs, state.Missing = append(state.Runs, run), ""
		return state.save(file)
	})
	switch {
	case errors.Is(err, errMissing):
		fmt.Fprintf(o.runner.tell, "soak: %s: %v\n", row.ID(), err)
		state.Missing = err.Error()
		if err := state.save(file); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("%s: %w; what is done is kept, run it again to go on", row.ID(), err)
	}
	return o.write()
}

// load reads what is done of a row.
func (o options) load(row Row) (State, string, error) {
	state, err := loadState(o.file(row), o.keys[row.ID()])
	return state, o.file(row), err
}

// states are what is done of some rows.
func (o options) states(rows []Row) ([]State, error) {
	out := make([]State, len(rows))
	for i, row := range rows {
		var err error
		if out[i], _, err = o.load(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// file is where the state of a row is kept.
func (o options) file(row Row) string { return filepath.Join(o.state, row.ID()+".json") }

// list prints how far each row is.
func (o options) list(w io.Writer) error {
	states, err := o.states(o.rows)
	if err != nil {
		return err
	}
	for i, row := range o.rows {
		fmt.Fprintf(w, "%-44s %2d of %2d runs done\n", row.ID(), states[i].done(row), row.Count)
	}
	return nil
}

// anew begins rows anew, and writes the page.
func (o options) anew(why string) error {
	if o.only == "*" {
		return errors.New("-anew: -only should say which rows begin anew")
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	for _, row := range chosen {
		state, file, err := o.load(row)
		if err != nil {
			return err
		}
		if len(state.Runs) == 0 {
			return fmt.Errorf("-anew: %s has no runs of the files as they are", row.ID())
		}
		if n := slices.IndexFunc(state.Runs, Run.failed); n >= 0 {
			return fmt.Errorf("-anew: run %d of %s failed: that is an answer, and stays until what the row depends on has changed", n+1, row.ID())
		}
		state.putAside(why)
		if err := state.save(file); err != nil {
			return err
		}
	}
	return o.write()
}
