package suite

import (
	"fmt"
	"io"
)

// Comparison compares a suite with an earlier one.
type Comparison struct{ Now, Baseline Result }

// before describes a cell of the baseline.
func (x *Comparison) before(c Cell) string {
	was := x.Baseline.find(c)
	if was == nil {
		return "the baseline does not have it"
	}
	return "it was " + was.word() + " in the baseline"
}

// regressed reports whether a cell is red that was green, or costs more than it did.
func (x *Comparison) regressed(c Cell) bool {
	was := x.Baseline.find(c)
	return was != nil && was.State() == Green && c.State() == Red || len(x.dearer(c)) > 0
}

// dearer lists the costs of a cell that are higher than in the baseline.
func (x *Comparison) dearer(c Cell) []string {
	if was := x.Baseline.find(c); was != nil {
		return dearer(c, *was)
	}
	return nil
}

// unanswered reports whether a cell that was green has no answer now. It returns false for cells left out by the
// budget.
func (x *Comparison) unanswered(c Cell) bool {
	was := x.Baseline.find(c)
	return was != nil && was.State() == Green && (c.State() == Unknown || c.State() == NotRun && c.Missing)
}

// Regressions returns two numbers of cells. regressions are red and were green, or cost more than they did.
// unanswered were green and have no answer.
func (x *Comparison) Regressions() (regressions, unanswered int) {
	for _, c := range x.Now.Cells {
		if x.regressed(c) {
			regressions++
		}
		if x.unanswered(c) {
			unanswered++
		}
	}
	return regressions, unanswered
}

// Text writes the differences from the baseline.
func (x *Comparison) Text(w io.Writer) error {
	fmt.Fprintf(w, "\nagainst the baseline of %s, version %s:\n", x.Baseline.Started, x.Baseline.Version)
	told, compared := 0, 0
	for _, c := range x.Now.Cells {
		was := x.Baseline.find(c)
		if was != nil && len(was.Runs) > 0 && len(c.Runs) > 0 {
			compared++
		}
		more := x.dearer(c)
		if was == nil && (c.State() == Green || c.State() == Apart) || was != nil && was.word() == c.word() &&
			len(more) == 0 {
			continue
		}
		told++
		word := "changed"
		switch {
		case x.regressed(c):
			word = "REGRESSION"
		case x.unanswered(c):
			word = "no answer"
		}
		why := ""
		if c.State() == NotRun {
			why = ", for " + c.NotRun
		}
		for _, m := range more {
			why += "; " + m
		}
		fmt.Fprintf(w, "  %s: %s, %s: %s%s; %s\n", word, c.Lock, c.Story, c.word(), why, x.before(c))
	}
	for _, c := range x.Baseline.Cells {
		if x.Now.find(c) == nil && c.State() != Apart {
			told++
			fmt.Fprintf(w, "  no longer there: %s, %s; it was %s in the baseline\n", c.Lock, c.Story, c.word())
		}
	}
	switch {
	case compared == 0:
		fmt.Fprintln(w, "  nothing was compared: no cell was run in both suites")
	case told == 0:
		fmt.Fprintf(w, "  nothing differs; cells run in both suites: %d\n", compared)
	}
	return nil
}
