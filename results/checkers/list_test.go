package checkers

import (
	"os"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/results"
)

// TestEveryCheckerHasABrokenHistory: golden histories show each count and measure of a checker above zero, and each
// kind of witness with a declared drawing.
func TestEveryCheckerHasABrokenHistory(t *testing.T) {
	for _, k := range All() {
		b, err := os.ReadFile("testdata/golden/" + k.Name + ".txt")
		if err != nil {
			t.Errorf("%s has no golden histories of its own: %v", k.Name, err)
			continue
		}
		red := map[string]bool{}
		for _, part := range strings.Split(string(b), "\n----\n") {
			s, err := parseScript(part)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range s.judge() {
				for _, w := range f.Witnesses {
					red["witness "+w.Kind] = true
				}
				for name, n := range f.Counts {
					red[name] = red[name] || n != nil && *n > 0
				}
				for name, m := range f.Measures {
					red[name] = red[name] || m != nil && *m > 0
				}
			}
		}
		for _, name := range (results.Checkers{k}).Names() {
			if !red[name] {
				t.Errorf("%s.txt does not show %s", k.Name, name)
			}
		}
		for _, w := range k.Witnesses {
			if !red["witness "+w.Name] {
				t.Errorf("%s.txt has no witness %s, of which the checker says how it is drawn", k.Name, w.Name)
			}
		}
	}
}

func TestNamesMatchTheCheckers(t *testing.T) {
	for _, k := range All() {
		fs, _ := results.NewCheckerRunner(results.Checkers{k}, results.Run{Locks: []string{"lock-0"}, TTL: 1}).Finish()
		f := fs[0]
		for _, q := range k.Counts {
			if _, ok := f.Counts[q.Name]; !ok {
				t.Errorf("%s does not yield the count %s", k.Name, q.Name)
			}
		}
		for _, q := range k.Measures {
			if _, ok := f.Measures[q.Name]; !ok {
				t.Errorf("%s does not yield the measure %s", k.Name, q.Name)
			}
		}
		if len(f.Counts) != len(k.Counts) || len(f.Measures) != len(k.Measures) {
			t.Errorf("%s yields %v and %v", k.Name, f.Counts, f.Measures)
		}
	}
}
