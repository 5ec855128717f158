package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// leastStall is the shortest stall of this machine after which a failed test is run again. It is longer than the 200
// ms that tests must tolerate.
const leastStall = 250 * time.Millisecond

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string
	Elapsed float64 // s
	Output  string
}

// record holds the reports of the tests of some packages.
type record struct{ pkgs []*pkg }

type pkg struct {
	name   string
	failed bool
	took   float64 // s, over all calls of go test
	tests  []*outcome
	byName map[string]*outcome
}

// outcome is one test or subtest; the one without a name is the package's own.
type outcome struct {
	name       string
	start, end time.Time
	took       float64 // s
	failed     bool
	red        bool // it failed at least once, even if the second run passed
	skipped    bool
	parent     bool // it has subtests
	below      bool // one of them failed
	text       strings.Builder
}

// closing matches the lines with which a package ends. Testrun prints its own, because a second run may change the
// result.
var closing = regexp.MustCompile(`^(ok|FAIL|PASS|exit status|\?)\s`)

// idle matches the lines about tests that begin and wait.
var idle = regexp.MustCompile(`^=== `)

// read reads the lines of `go test -json`, and prints packages that pass as they end.
func (r *record) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Package == "" {
			fmt.Fprintln(out, lines.Text()) // of the build
			continue
		}
		p := r.pkg(e.Package)
		p.take(e, out)
		if e.Test == "" && e.Action == "pass" {
			p.closes(out)
		}
	}
	return lines.Err()
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
		t.red = t.red || t.failed
		if e.Test == "" {
			p.took, p.failed = p.took+e.Elapsed, t.failed
		}
		if parent := p.parent(e.Test); parent != nil && t.failed {
			parent.below = true
		}
		if e.Action == "skip" && e.Test != "" {
			fmt.Fprint(out, t.text.String())
		}
	}
}

// parent returns the test that a subtest belongs to, or nil.
func (p *pkg) parent(name string) *outcome {
	if i := strings.LastIndex(name, "/"); i > 0 {
		return p.byName[name[:i]]
	}
	return nil
}

// leaves returns the tests and subtests that have no subtests, without the package itself.
func (p *pkg) leaves() []*outcome {
	return slices.DeleteFunc(slices.Clone(p.tests), func(t *outcome) bool { return t.name == "" || t.parent })
}

// closes prints the line with which go test closes a package.
func (p *pkg) closes(out io.Writer) {
	result := "ok  "
	if p.failed {
		result = "FAIL"
	}
	fmt.Fprintf(out, "%s\t%s\t%.3fs\n", result, p.name, p.took)
}

// judge reruns tests that failed while the machine stalled, prints the failures, and returns the number of failed
// packages.
func (r *record) judge(out io.Writer, watched *stalls, again func(*pkg, string) (*record, error)) (failed int,
	err error,
) {
	for _, p := range r.pkgs {
		if !p.failed {
			continue
		}
		if p.failed, err = p.retry(out, watched, again); err != nil {
			return 0, err
		}
		p.tell(out)
		p.closes(out)
		if p.failed {
			failed++
		}
	}
	return failed, nil
}

// tell prints the output of the failed tests. If they passed the second time, each line is marked, so that it is not
// taken for a failure.
func (p *pkg) tell(out io.Writer) {
	mark := "| "
	if p.failed {
		mark = ""
	}
	for _, t := range p.tests {
		if !t.failed {
			continue
		}
		for line := range strings.Lines(t.text.String()) {
			fmt.Fprint(out, mark, line)
		}
	}
}

// retry reruns tests that failed during a stall, and reports whether the package still fails.
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
			fmt.Fprintf(out, "testrun: %s failed. This machine had no standstill of %v meanwhile: no second run\n", t.name, leastStall)
			still = true
			continue
		}
		fmt.Fprintf(out, "testrun: %s failed. This machine stood still %d times for %v or more meanwhile, %v the longest: it is run once more\n", t.name, n, leastStall, longest)
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

// pattern returns the -run pattern of one test or subtest.
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

// within returns the number of stalls that overlap a time, and the longest.
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
