package checkers

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/quorum"
)

// whole returns the events as the checkers see them: replicas' effects as the resource's.
func (s *script) whole() []history.Event {
	q := quorum.New(s.run.Replicas)
	var out []history.Event
	for i, e := range s.events {
		if q.Take(s.at[i], &e) != quorum.None {
			out = append(out, e)
		}
	}
	return append(out, q.Minority()...)
}

// judge runs all checkers over the script.
func (s *script) judge() []results.Finding {
	events := s.whole()
	s.run.Still = results.NewStandstills(s.run)
	for i := range s.events {
		process := s.at[i]
		if process == "" {
			process = history.ClientName(s.events[i].User.Client())
		}
		s.run.Still.Observe(process, &s.events[i])
	}
	trial := results.NewCheckerRunner(All(), s.run)
	for i := range events {
		trial.Observe(events[i:i+1], []*history.Header{{Process: history.ClientName(events[i].User.Client())}})
	}
	fs, _ := trial.Finish()
	return fs
}

// got returns a count or measure in the form of a want.
func got(fs []results.Finding, name string) string {
	for _, f := range fs {
		if of, ok := strings.CutPrefix(name, "excused:"); ok && f.Counts[of] != nil {
			return strconv.FormatInt(f.Excused[of].N, 10)
		}
		if of, ok := strings.CutPrefix(name, "chances:"); ok && f.Counts[of] != nil {
			return strconv.FormatInt(f.Chances[of].N, 10)
		}
		if of, ok := strings.CutPrefix(name, "witnesses:"); ok && f.Checker == of {
			return strconv.Itoa(len(f.Witnesses))
		}
		if n, ok := f.Counts[name]; ok {
			if n == nil {
				return "null"
			}
			return strconv.FormatInt(*n, 10)
		}
		if m, ok := f.Measures[name]; ok {
			if m == nil {
				return "null"
			}
			return strconv.FormatFloat(*m, 'f', -1, 64)
		}
	}
	return "missing"
}

func TestGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/golden/*.txt")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d golden histories: %v", len(paths), err)
	}
	for _, p := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(p), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range strings.Split(string(b), "\n----\n") {
				title, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(part), "# "), "\n")
				t.Run(title, func(t *testing.T) { golden(t, part) })
			}
		})
	}
}

func golden(t *testing.T, text string) {
	s, err := parseScript(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.want) == 0 {
		t.Fatal("it wants nothing")
	}
	fs := s.judge()
	for name, want := range s.want {
		g := got(fs, name)
		if checker, ok := strings.CutPrefix(name, "verdict:"); ok {
			g = string(fs[slices.IndexFunc(fs, func(f results.Finding) bool { return f.Checker == checker })].Verdict)
		}
		if g != want {
			t.Errorf("%s is %s, want %s", name, g, want)
		}
	}
	for _, f := range fs {
		for _, w := range f.Warnings {
			if strings.Contains(w, "crashed") {
				t.Errorf("%s: %s", f.Checker, w)
			}
		}
		checkWitnesses(t, s, f)
	}
}

// checkWitnesses demands a witness for each kind of violation, made of real events.
func checkWitnesses(t *testing.T, s *script, f results.Finding) {
	t.Helper()
	if f.Verdict == results.Violated && len(f.Witnesses) == 0 && f.Checker != "unfairness" {
		t.Errorf("%s is violated and has no witness", f.Checker)
	}
	found := len(f.Counts) == 0
	for _, n := range f.Counts {
		found = found || n != nil && *n > 0
	}
	if !found && len(f.Witnesses) > 0 {
		t.Errorf("%s counts nothing and has witnesses", f.Checker)
	}
	for _, w := range f.Witnesses {
		if len(w.Events)+len(w.Observed) == 0 || w.Text == "" || w.From > w.To {
			t.Errorf("%s: an empty witness: %+v", f.Checker, w)
		}
		for _, e := range w.Events {
			if !slices.Contains(s.whole(), e) {
				t.Errorf("%s: the witness has an event that is not in the history: %+v", f.Checker, e)
			}
		}
		if (w.Kind == "double_grant" || w.Kind == "overlapping_hold" || w.Kind == "stale_write") && len(w.Holds) != max(1, s.run.Permits)+1 {
			t.Errorf("%s: the witness has %d holds", f.Checker, len(w.Holds))
		}
	}
}
