package hunt

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/results/figure"
)

// Text writes the result for a terminal: what was found, then what was tried. dir is the directory of the hunt as it
// is printed.
func (r Result) Text(w io.Writer, dir string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s: %s\n", r.Backend, r.Lock, r.Answer())
	for _, line := range r.story(dir) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	b.WriteString("\ntried\n")
	for _, line := range r.Tried() {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	if rows := r.bitRows(); len(rows) > 1 {
		b.WriteString("\nfaults that bit\n")
		for line := range strings.Lines(figure.Table(rows).Text()) {
			b.WriteString("  " + line)
		}
	}
	if len(r.Refused) > 0 {
		b.WriteString("\nnot tried here\n")
		for _, line := range r.Refused {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Answer returns the result in one line.
func (r Result) Answer() string {
	if len(r.Findings) == 0 {
		return "nothing found (" + figure.List(words(r.Goals)) + ")"
	}
	f := r.worst()
	return fmt.Sprintf("found %s, after %s and %s", figure.Words(f.Goal), figure.Of(f.Run, "run"),
		ms(f.At).Round(100*time.Millisecond))
}

func words(names []string) (out []string) {
	for _, n := range names {
		out = append(out, figure.Words(n))
	}
	return out
}

// worst returns the finding of the first goal that was reached; there must be one.
func (r Result) worst() Finding {
	return slices.MinFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(r.Goals, a.Goal), slices.Index(r.Goals, b.Goal))
	})
}

// story says what was found, how small it became, and how certain it is.
func (r Result) story(dir string) (lines []string) {
	if len(r.Findings) == 0 {
		if n := r.Nearest; n != nil {
			lines = append(lines, fmt.Sprintf("nearest to %s: run %d with %s", figure.Words(n.Goal), n.Run, n.Script.Text()))
		}
		return lines
	}
	f := r.worst()
	lines = append(lines, f.Claim)
	switch x := r.Shrunk; {
	case x == nil:
		lines = append(lines, "not made smaller: "+f.Script.Text())
	case !x.HandedOut():
		lines = append(lines, x.fails()+"; "+f.Script.Text())
	default:
		lines = append(lines, x.Script.Text())
		lines = append(lines, fmt.Sprintf("%s, which break it in %d of %s that had no part in its choice",
			sizeText(x.Size), x.Reached, figure.Of(x.Runs, "run")))
		if x.Stopped != "" {
			lines = append(lines, "it may get smaller: "+x.Stopped)
		}
	}
	lines = append(lines, "first run  "+filepath.Join(dir, f.Dir))
	if x := r.Shrunk; x.HandedOut() {
		lines = append(lines, "scenario   "+filepath.Join(dir, x.File))
	}
	for _, o := range r.Findings {
		if o.Goal != f.Goal {
			lines = append(lines, fmt.Sprintf("also: %s in run %d (%s)", figure.Words(o.Goal), o.Run, filepath.Join(dir, o.Dir)))
		}
	}
	return lines
}

// fails says that a script is not handed out, and in how many runs it reached its goal.
func (x *Shrunk) fails() string {
	word := "it does not reproduce"
	if x.Runs-x.Reached <= tries-proof {
		word = "not shown to reproduce, " + cmp.Or(x.Stopped, "for the hunt was interrupted")
	}
	return fmt.Sprintf("%s: %d of %s", word, x.Reached, figure.Of(x.Runs, "run"))
}

// fewRuns is the number of runs below which nothing is claimed: three in n of fewer are more than one in ten.
const fewRuns = 30

// share returns the 95 % upper bound on the rate of an event that n tries did not show: three in n.
func share(n int64) string { return figure.Number(300/float64(n)) + " %" }

// Tried says what a hunt did, and what it can say nothing about.
func (r Result) Tried() []string {
	lines := []string{fmt.Sprintf("%s in %v, %s judged", figure.Of(r.Runs, "run"), ms(r.Took).Round(time.Second),
		figure.Of(r.Grants, "grant"))}
	if r.Unknown > 0 {
		lines[0] += fmt.Sprintf("; %d of the runs unknown", r.Unknown)
	}
	if r.LastNew != nil {
		lines = append(lines, fmt.Sprintf("%s, the last new one in run %d after %v", figure.Of(r.Behaviours, "behaviour"),
			r.LastNew.Run, ms(r.LastNew.At).Round(time.Second)))
	}
	switch {
	case len(r.Findings) > 0:
	case r.Runs < fewRuns || r.Grants == 0:
		lines = append(lines, "So little says nothing about the lock.")
	default:
		lines = append(lines, fmt.Sprintf(
			"With 95 %% confidence, fewer than %s of such runs and %s of such grants break the lock. What takes other faults, longer runs or more luck was not seen.",
			share(int64(r.Runs)), share(r.Grants)))
	}
	return lines
}

// bitRows returns the rows of the table of injected faults.
func (r Result) bitRows() [][]string {
	rows := [][]string{{"fault", "on", "bit", "of"}}
	bites := slices.SortedFunc(slices.Values(r.Bit), func(a, b behaviour.Bite) int {
		return cmp.Or(cmp.Compare(a.Fault, b.Fault), cmp.Compare(a.Role, b.Role))
	})
	for _, b := range bites {
		rows = append(rows, []string{b.Fault, b.Role, figure.Count(b.Bit), figure.Count(b.Made)})
	}
	return rows
}
