// Testrun runs `go test` with the arguments that follow it, and again with those behind each "then". It prints what failed, a line for each package, and the ten slowest tests;
// build/tests.jsonl has it all. A test that failed while this machine stood still is run again, once, and testrun says so. Nothing else
// is run again.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/wire"
)

// leastStall is the shortest stall for which a failed test is run again: etcd's heartbeat. Stories keep two events at
// least that far apart, so a shorter stall changes no order.
const leastStall = 100 * time.Millisecond

// file keeps all that the tests told, as lines of `go test -json`.
const file = "build/tests.jsonl"

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
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
	first := &record{}
	for _, group := range groups(args) {
		r, err := test(group, out, all)
		if err != nil {
			return err
		}
		first.pkgs = append(first.pkgs, r.pkgs...)
	}
	second := func(p *pkg, name string) (*record, error) {
		again := append(timeLimit(args), "-tags", "integration", "-count", "1", "-run", pattern(name), p.name)
		return test(again, out, all)
	}
	failed, err := first.judge(out, &watched, second)
	if err != nil {
		return err
	}
	first.slowest(out, 10)
	if failed > 0 {
		return fmt.Errorf("%d packages failed", failed)
	}
	return nil
}

// timeLimit is that of the arguments: go test's own is shorter than what one test of many stories takes.
func timeLimit(args []string) []string {
	if i := slices.Index(args, "-timeout"); i >= 0 && i+1 < len(args) {
		return slices.Clone(args[i : i+2])
	}
	return nil
}

// groups are the calls of `go test` that the arguments ask for: one after another, with "then" between them.
func groups(args []string) [][]string {
	i := slices.Index(args, "then")
	if i < 0 {
		return [][]string{args}
	}
	return append([][]string{args[:i]}, groups(args[i+1:])...)
}

// test runs the tests and reads what they tell, which goes to all as it is. Tests that fail are no error.
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
	r, err := read(io.TeeReader(pipe, all), out)
	var exit *exec.ExitError
	if ended := c.Wait(); ended != nil && !errors.As(ended, &exit) {
		err = errors.Join(err, ended)
	} else if ended != nil && !slices.ContainsFunc(r.pkgs, func(p *pkg) bool { return p.failed }) {
		err = errors.Join(err, ended) // go test itself failed
	}
	return r, err
}

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Elapsed float64 // s
	Output  string
}

// record is what the tests told.
type record struct{ pkgs []*pkg }

type pkg struct {
	name   string
	failed bool
	took   float64 // s
	tests  []*outcome
	byName map[string]*outcome
}

// outcome is one test or subtest; that of the empty name is the package's own.
type outcome struct {
	name       string
	start, end time.Time
	took       float64 // s
	failed     bool
	skipped    bool
	parent     bool // it has subtests
	below      bool // one of them failed
	text       strings.Builder
}

// closing are the lines with which a package ends. Testrun writes its own, because a second run may change the
// result.
var closing = regexp.MustCompile(`^(ok|FAIL|PASS|exit status|\?)\s`)

// idle are the lines about tests that begin and wait.
var idle = regexp.MustCompile(`^=== `)

func read(in io.Reader, out io.Writer) (*record, error) {
	r := &record{}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Package == "" {
			fmt.Fprintln(out, lines.Text()) // of the build
			continue
		}
		r.pkg(e.Package).take(e, out)
	}
	return r, lines.Err()
}

func (r *record) pkg(name string) *pkg {
	for _, p := range r.pkgs {
		if p.name == name {
			return p
		}
	}
	p := &pkg{name: name, byName: map[string]*outcome{}}
	r.pkgs = append(r.pkgs, p)
	return p
}

func (p *pkg) take(e event, out io.Writer) {
	t := p.byName[e.Test]
	if t == nil {
		t = &outcome{name: e.Test, start: e.Time}
		p.byName[e.Test] = t
		p.tests = append(p.tests, t)
		if parent := p.parent(e.Test); parent != nil {
			parent.parent = true
		}
	}
	switch e.Action {
	case "output":
		if !idle.MatchString(e.Output) && (e.Test != "" || !closing.MatchString(e.Output)) {
			t.text.WriteString(e.Output)
		}
	case "cont": // a parallel test begins to run
		t.start = e.Time
	case "pass", "skip", "fail":
		t.end, t.took, t.failed, t.skipped = e.Time, e.Elapsed, e.Action == "fail", e.Action == "skip"
		if e.Test == "" {
			p.took, p.failed = e.Elapsed, t.failed
		}
		if parent := p.parent(e.Test); parent != nil && t.failed {
			parent.below = true
		}
		if e.Action == "skip" && e.Test != "" {
			fmt.Fprint(out, t.text.String())
		}
	}
}

// parent is the test that a subtest belongs to, or nil.
func (p *pkg) parent(name string) *outcome {
	if i := strings.LastIndex(name, "/"); i > 0 {
		return p.byName[name[:i]]
	}
	return nil
}

// judge runs again what failed while the machine stood still, prints a line for each package, and returns how many failed.
func (r *record) judge(out io.Writer, watched *stalls, again func(*pkg, string) (*record, error)) (int, error) {
	failed := 0
	for _, p := range r.pkgs {
		if p.failed {
			still, err := p.retry(out, watched, again)
			if err != nil {
				return 0, err
			}
			p.failed = still
			p.tell(out)
		}
		if t := p.byName[""]; t != nil && t.skipped {
			continue // it has no tests
		}
		if p.failed {
			failed++
			fmt.Fprintf(out, "FAIL\t%s\t%.3fs\n", p.name, p.took)
		} else {
			fmt.Fprintf(out, "ok  \t%s\t%.3fs\n", p.name, p.took)
		}
	}
	return failed, nil
}

// tell prints what the tests said that failed; where they passed the second time, so that nobody takes it for a failure.
func (p *pkg) tell(out io.Writer) {
	for _, t := range p.tests {
		for line := range strings.Lines(t.text.String()) {
			switch {
			case !t.failed:
			case p.failed:
				fmt.Fprint(out, line)
			default:
				fmt.Fprint(out, "| ", line)
			}
		}
	}
}

// retry tells whether a package fails still.
func (p *pkg) retry(out io.Writer, watched *stalls, again func(*pkg, string) (*record, error)) (still bool, err error) {
	var failed []*outcome
	for _, t := range p.tests {
		if t.failed && t.name != "" && !t.below {
			failed = append(failed, t)
		}
	}
	if len(failed) == 0 {
		return true, nil // it did not build, or died as a whole
	}
	for _, t := range failed {
		n, longest := watched.within(t.start, t.end)
		if n == 0 {
			fmt.Fprintf(out, "testrun: %s failed. This machine did not stand still for %v meanwhile: it is not run again\n", t.name, leastStall)
			still = true
			continue
		}
		fmt.Fprintf(out, "testrun: %s failed. This machine stood still %d times for %v or more meanwhile, %v the longest: it is run again, once\n", t.name, n, leastStall, longest)
		r, err := again(p, t.name)
		if err != nil {
			return true, err
		}
		if slices.ContainsFunc(r.pkgs, func(p *pkg) bool { return p.failed }) {
			still = true
		} else {
			fmt.Fprintf(out, "testrun: %s passed the second time\n", t.name)
		}
	}
	return still, nil
}

// slowest prints the tests that took longest, those that only have subtests left out.
func (r *record) slowest(out io.Writer, n int) {
	var all []*outcome
	for _, p := range r.pkgs {
		for _, t := range p.tests {
			if t.name != "" && !t.parent {
				all = append(all, t)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *outcome) int { return int(1000 * (b.took - a.took)) })
	fmt.Fprintln(out, "the slowest tests:")
	for _, t := range all[:min(n, len(all))] {
		fmt.Fprintf(out, "%8.1f s  %s\n", t.took, t.name)
	}
}

// pattern is the -run of one test or subtest.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// stalls are the times at which this process did not run.
type stalls struct {
	mu  sync.Mutex
	all []stall
}

type stall struct {
	end time.Time
	gap time.Duration
}

func (s *stalls) add(gap int64) {
	if d := time.Duration(gap); d >= leastStall {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, stall{time.Now(), d})
	}
}

// within counts the stalls that touch a time, and returns the longest.
func (s *stalls) within(from, to time.Time) (n int, longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		if x.end.After(from) && x.end.Add(-x.gap).Before(to) {
			n, longest = n+1, max(longest, x.gap.Round(time.Millisecond))
		}
	}
	return n, longest
}
