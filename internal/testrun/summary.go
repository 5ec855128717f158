package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shown is the number of slowest tests in a summary.
const shown = 10

// module is omitted from the names of packages.
const module = "github.com/lockquake/lockquake/"

// load reads files of `go test -json`. A test that ran twice has the outcome of the second run, and stays red if the
// first was.
func load(files []string) (*record, error) {
	r := &record{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = r.read(f, io.Discard)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// row is a line of a table: a test or a package, and the seconds that it took.
type row struct {
	name string
	took float64
}

// table sorts rows by time and prints the first n; 0 means all that took 1 s or more.
func table(out io.Writer, title string, rows []row, n int) {
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(out, "\n== %s ==\n", title)
	for i, r := range rows {
		if n > 0 && i == n || n == 0 && r.took < 1 {
			break
		}
		fmt.Fprintf(out, "%8.1f s  %s\n", r.took, r.name)
	}
}

// slowest lists the tests without subtests, of all packages.
func (r *record) slowest() (rows []row) {
	for _, p := range r.pkgs {
		for _, t := range p.leaves() {
			rows = append(rows, row{strings.TrimPrefix(p.name, module) + " " + t.name, t.took})
		}
	}
	return rows
}

// packages lists how long each package took, and their sum. Packages run side by side, so a whole run takes less than
// the sum.
func (r *record) packages() (rows []row) {
	sum := row{name: "sum"}
	for _, p := range r.pkgs {
		rows = append(rows, row{strings.TrimPrefix(p.name, module), p.took})
		sum.took += p.took
	}
	return append(rows, sum)
}

// summary prints the slowest tests and the time by package.
func summary(out io.Writer, files []string) error {
	r, err := load(files)
	if err != nil {
		return err
	}
	table(out, "the slowest tests", r.slowest(), shown)
	table(out, "time by package; packages run side by side", r.packages(), 0)
	return nil
}

// flakyRun is one whole `make test` of .ci/flaky.
type flakyRun struct {
	name   string // its folder: quiet-1, loaded-2, ...
	result string // how it ended, as .ci/flaky wrote it
	took   map[string]float64
	red    []string
}

// kind returns quiet or loaded.
func (r flakyRun) kind() string { kind, _, _ := strings.Cut(r.name, "-"); return kind }

// flakyRuns reads the finished runs below a folder.
func flakyRuns(dir string) (runs []flakyRun, err error) {
	results, err := filepath.Glob(filepath.Join(dir, "*", "result"))
	if err != nil {
		return nil, err
	}
	for _, path := range results {
		result, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.jsonl"))
		if err != nil {
			return nil, err
		}
		r, err := load(files)
		if err != nil {
			return nil, err
		}
		run := flakyRun{
			name: filepath.Base(filepath.Dir(path)), result: strings.TrimSpace(string(result)),
			took: map[string]float64{},
		}
		for _, p := range r.pkgs {
			name := strings.TrimPrefix(p.name, module)
			for _, t := range p.leaves() {
				run.took[name+" "+t.name] = t.took
				if t.red {
					run.red = append(run.red, name+" "+t.name)
				}
			}
			if p.byName[""] != nil && p.byName[""].red &&
				!slices.ContainsFunc(p.leaves(), func(t *outcome) bool { return t.red }) {
				run.red = append(run.red, name+" (the package)")
			}
		}
		runs = append(runs, run)
	}
	return runs, nil
}

// compareRuns prints how each run ended, each test that was red in any, and the slowest tests by kind of run. A test
// that passed the second time counts as red.
func compareRuns(out io.Writer, dir string) error {
	runs, err := flakyRuns(dir)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fmt.Errorf("%s has no finished runs", dir)
	}
	red := map[string][]string{} // runs by test
	for _, r := range runs {
		fmt.Fprintf(out, "%-10s %s\n", r.name, r.result)
		for _, test := range r.red {
			red[test] = append(red[test], r.name)
		}
	}
	fmt.Fprintf(out, "\n== %d tests were red in any of %d runs ==\n", len(red), len(runs))
	for _, test := range slices.Sorted(maps.Keys(red)) {
		fmt.Fprintf(out, "%s: %s\n", test, strings.Join(red[test], ", "))
	}
	for _, kind := range []string{"quiet", "loaded"} {
		took := map[string][]float64{}
		for _, r := range runs {
			for test, s := range r.took {
				if r.kind() == kind {
					took[test] = append(took[test], s)
				}
			}
		}
		var rows []row
		for test, s := range took {
			slices.Sort(s)
			rows = append(rows, row{test, s[len(s)/2]})
		}
		if len(rows) > 0 {
			table(out, "the slowest tests, median of the "+kind+" runs", rows, shown)
		}
	}
	return nil
}
