package suite

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jstemmer/go-junit-report/v2/junit"

	"github.com/lockquake/lockquake/results/figure"
)

// withWarnings marks a green cell with counts of trouble that its story does not name.
const withWarnings = ", with warnings"

// table returns a row for each story and a column for each lock, with their names as heads.
func (r Result) table() [][]string {
	head := []string{"story"}
	rows := [][]string{}
	at := map[string]int{}
	for _, c := range r.Cells {
		if !slices.Contains(head[1:], c.Lock) {
			head = append(head, c.Lock)
		}
		if _, ok := at[c.Story]; !ok {
			at[c.Story] = len(rows)
			rows = append(rows, []string{c.Story})
		}
	}
	for i := range rows {
		for _, lock := range head[1:] {
			word := "-"
			if c := r.find(Cell{Lock: lock, Story: rows[i][0]}); c != nil {
				if word = c.word(); c.short() != "" {
					word += " of too few grants"
				} else if c.uncovered() != "" {
					word += withWarnings
				}
			}
			rows[i] = append(rows[i], word)
		}
	}
	return append([][]string{head}, rows...)
}

// told returns the cells to explain: those that are not green, or are worth less than they look. It omits those that
// do not apply.
func (r Result) told() []Cell {
	return slices.DeleteFunc(slices.Clone(r.Cells),
		func(c Cell) bool { return c.State() == Green && c.warning() == "" || c.State() == Apart })
}

// Text writes the suite for people.
func (r Result) Text(w io.Writer) error {
	if _, err := io.WriteString(w, figure.Table(r.table()).Text()); err != nil {
		return err
	}
	for _, c := range r.told() {
		fmt.Fprintf(w, "\n%s, %s: %s: %s\n", c.Lock, c.Story, c.word(), c.reason())
		if dir := c.shown(); dir != "" {
			fmt.Fprintf(w, "  %s\n", dir)
		}
	}
	for i, p := range r.properties() {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s: %s\n", p.lock, p.name, p.answer)
	}
	_, err := fmt.Fprintf(w, "\n%v\n", r.Sums())
	return err
}

// marks precede the word of a state in Markdown.
var marks = map[State]string{Green: "✅ ", Red: "❌ ", Unknown: "❔ ", NotRun: "⏳ "}

// Markdown writes the suite as a table for the summary of a CI job.
func (r Result) Markdown(w io.Writer) error {
	table := figure.Table(r.table())
	for i, row := range table {
		for k := range row {
			row[k] = figure.Cell(row[k])
			for state, mark := range marks {
				if i > 0 && k > 0 && strings.HasPrefix(row[k], string(state)) {
					row[k] = mark + row[k]
				}
			}
			if strings.HasSuffix(row[k], withWarnings) {
				row[k] = strings.Replace(row[k], marks[Green], "🟡 ", 1)
			}
		}
	}
	fmt.Fprintf(w, "%s\n%v\n\n", table.Markdown(), r.Sums())
	for _, c := range r.told() {
		fmt.Fprintf(w, "- **%s, %s**: %s: %s\n", figure.Cell(c.Lock), figure.Cell(c.Story), c.word(),
			figure.Cell(c.reason()))
	}
	for _, p := range r.properties() {
		fmt.Fprintf(w, "- %s: %s: %s\n", figure.Cell(p.lock), figure.Cell(p.name), p.answer)
	}
	return nil
}

// JUnit writes the suite as JUnit XML: a suite for each lock, a case for each story. A red cell is a failure, an
// unknown one an error. One that was not run or does not apply is skipped. With a comparison, only a regression is a
// failure; cells that were red before are skipped.
func (r Result) JUnit(w io.Writer, with *Comparison) error {
	all := junit.Testsuites{Name: "lockquake"}
	var locks []string
	for _, c := range r.Cells {
		if !slices.Contains(locks, c.Lock) {
			locks = append(locks, c.Lock)
		}
	}
	for i, lock := range locks {
		s := junit.Testsuite{Name: lock, ID: i}
		var whole time.Duration
		for _, c := range r.Cells {
			if c.Lock != lock {
				continue
			}
			var took time.Duration
			for _, run := range c.Runs {
				took += time.Duration(run.Took) * time.Millisecond
			}
			whole += took
			s.AddTestcase(c.junit(took, with))
		}
		for _, p := range r.properties() {
			if p.lock == lock {
				s.AddProperty(p.name, p.answer)
			}
		}
		s.Time = seconds(whole)
		all.AddSuite(s)
	}
	return all.WriteXML(w)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

func (c Cell) junit(took time.Duration, with *Comparison) junit.Testcase {
	out := junit.Testcase{Name: c.Story, Classname: c.Lock, Time: seconds(took)}
	var data []string
	for _, run := range c.Runs {
		data = append(data, fmt.Sprintf("%s, seed %d: %s: %s", run.Verdict, run.Seed, strings.Join(run.Reasons, "; "),
			run.Dir), run.Replay)
	}
	what := &junit.Result{
		Message: c.word() + ": " + c.reason(), Type: string(c.State()),
		Data: strings.Join(data, "\n"),
	}
	switch state := c.State(); {
	case c.warning() != "":
		out.SystemOut = &junit.Output{Data: c.warning()}
	case state == Red && with != nil && !with.regressed(c):
		what.Message += "; no regression: " + with.before(c)
		out.Skipped = what
	case state == Red:
		out.Failure = what
	case state == Unknown:
		out.Error = what
	case state != Green:
		out.Skipped = what
	}
	return out
}
