package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/report/story"
)

// madeUp is a checker that is not in the list and does not say how its witness is drawn.
type madeUp struct{ witness results.Witness }

func (madeUp) Observe(*history.Event) {}

func (c madeUp) Finish() results.Finding {
	f := results.Finding{}
	f.Prove(c.witness)
	return f.Judged("napping_holders", 1, 2)
}

// TestAWitnessOfANewCheckerIsDrawn: the picture is about it, with or without holds, in a story of steps and in a
// load.
func TestAWitnessOfANewCheckerIsDrawn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		story, holds, fault, named bool
	}{
		"a load, with holds":                   {holds: true},
		"a load":                               {},
		"a load in which something was broken": {fault: true},
		"a load that names the count":          {named: true},
		"a story, with holds":                  {story: true, holds: true},
		"a story":                              {story: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			if c.story {
				w.env.People = map[string]string{"A": "client-1", "B": "client-2"}
			}
			a := w.acquire(history.MakeUser(0, 0), 5000, 5005, 7, 2000)
			w.release(a, 5050, history.Ok, 0)
			b := w.acquire(history.MakeUser(1, 0), 5010, 5060, 8, 2000)
			w.release(b, 5090, history.Ok, 0)
			dir := w.write(a, b)
			witness := results.Witness{
				Kind: "napping_holder", Lock: "lock-0", From: at(5070), To: at(5080), Text: "client-2/0 napped at 5080.123 ms",
			}
			if c.holds {
				witness.Holds = []results.HoldRef{b.ref}
			}
			r := baseReport(w, dir)
			r.Findings, _ = results.NewCheckerRunner(results.Checkers{{
				Name: "napping", Counts: []results.Quantity{{Name: "napping_holders", Tone: results.Violation}},
				New: func(results.Run) results.Checker { return madeUp{witness} },
			}}, results.Run{}).Finish()
			if c.named {
				r.Counts["napping_holders"] = ptr(int64(1))
				r.Expectations = append(r.Expectations, results.ExpectationResult{
					Name: "napping_holders", Want: ">0", Got: ptr(1.0), Verdict: results.Pass,
				})
			}
			if c.fault {
				writeFaults(t, dir, []history.Fault{pauseFault(a.user, a)})
			}
			s := synthetic{dir, r}
			got, drawn := toldOf(t, s), string(pictureOf(t, s))
			if !strings.HasPrefix(got.Title, "Napping holder") || !strings.Contains(got.Text, "napped at 5080.1 ms") {
				t.Errorf("headline %q, %q", got.Title, got.Text)
			}
			n := 0
			for _, m := range got.Marks {
				if m.Time == at(5080) && strings.Contains(strings.ToLower(m.Label), "napping holder") && m.Lane >= 0 {
					n++
				}
			}
			if n != 1 || !strings.Contains(strings.ToLower(drawn), "napping holder") {
				t.Errorf("%d marks of it, among %+v", n, got.Marks)
			}
			if !slices.ContainsFunc(got.Holds, func(h story.Bar) bool { return h.Ref.User == b.user }) {
				t.Errorf("its holder is not drawn: %+v", got.Holds)
			}
		})
	}
}
