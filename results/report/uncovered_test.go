package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/terminal"
)

// TestUncoveredViolationsAreShown is shown next to every verdict, in amber if there are colours; without such counts
// nothing is shown.
func TestUncoveredViolationsAreShown(t *testing.T) {
	r := results.Report{Scenario: "s", Verdict: results.Pass, Uncovered: results.Uncovered{"overlapping_holds": 3, "orphans": 1}}
	const told = "also    orphans 1, overlapping_holds 3 (no expectation covers it)"
	for name, c := range map[string]struct {
		write func(*bytes.Buffer, results.Report) error
		want  string
	}{
		"brief": {func(b *bytes.Buffer, r results.Report) error { return Text(b, r) }, told},
		"whole": {func(b *bytes.Buffer, r results.Report) error { return Text(b, r, terminal.Whole()) }, told},
		"amber": {func(b *bytes.Buffer, r results.Report) error { return Text(b, r, terminal.Colour("~")) }, "~[1;33m" + told + "~[0m"},
		"table": {
			func(b *bytes.Buffer, r results.Report) error { return Matrix(b, []results.Report{r, r}) },
			"s: also found: orphans 2, overlapping_holds 6 (no expectation covers it)",
		},
		"page": {
			func(b *bytes.Buffer, r results.Report) error { b.WriteString(sentence(r)); return nil },
			"violations without an expectation: orphans 1, overlapping_holds 3.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var with, without bytes.Buffer
			covered := r
			covered.Uncovered = nil
			if err := c.write(&with, r); err != nil || strings.Count(with.String(), c.want) != 1 {
				t.Errorf("%v\n%s", err, &with)
			}
			if err := c.write(&without, covered); err != nil || strings.Contains(without.String(), "also ") {
				t.Errorf("%v\n%s", err, &without)
			}
		})
	}
}
