package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/terminal"
)

// matrixColumns are the counts that have a column.
var matrixColumns = slices.DeleteFunc(foremost(func(k results.CheckerKind) []results.Quantity { return k.Counts }),
	func(q results.Quantity) bool { return q.Column == "" })

// Matrix writes one row for each of several scenarios: the findings, and the verdict. The row of a scenario that ran
// several times has the sums, the number of runs with findings, and the number that met the expectations. Below the
// table are the reasons of runs that did not pass, and the rates of several runs together.
func Matrix(w io.Writer, rs []results.Report, opts ...terminal.Option) error {
	st := terminal.NewStyle(opts)
	rows := [][]string{{"scenario"}}
	for _, c := range matrixColumns {
		rows[0] = append(rows[0], c.Column)
	}
	families := byScenario(rs)
	missing := false
	for _, f := range families {
		row := []string{f[0].Scenario}
		for _, c := range matrixColumns {
			cell := summed(f, c.Name)
			missing = missing || cell == noFigure
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	b := st.Text()
	for i := range rows {
		rows[i] = append(rows[i], "#") // place of the verdict: colour codes must not be measured
	}
	plain := terminal.Indent(figure.Table(rows).Text())
	for i, line := range strings.Split(strings.TrimSuffix(plain, "\n"), "\n") {
		verdict := "verdict"
		if i > 0 {
			verdict = verdicts(families[i-1], st)
		}
		b.WriteString(strings.TrimSuffix(line, "#") + verdict + "\n")
	}
	if missing {
		b.WriteString("  - is not judged\n")
	}
	for _, f := range families {
		whyNot(b, f)
		if len(f) > 1 {
			failoverLine(b, "  = "+f[0].Scenario+": ", f...)
		}
		all := results.Uncovered{}
		for _, r := range f {
			all.Add(r.Uncovered)
		}
		textUncovered(b, "  ~ "+f[0].Scenario+": also found: ", all, st)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// byScenario groups runs by scenario, in the order of their first runs.
func byScenario(rs []results.Report) [][]results.Report {
	var out [][]results.Report
	for _, r := range rs {
		i := slices.IndexFunc(out, func(f []results.Report) bool { return f[0].Scenario == r.Scenario })
		if i < 0 {
			out = append(out, []results.Report{r})
		} else {
			out[i] = append(out[i], r)
		}
	}
	return out
}

// noFigure is the cell of a count that no run has judged: it is not zero.
const noFigure = "-"

// summed adds up one count over the runs of a scenario that judged it.
func summed(f []results.Report, name string) string {
	var sum int64
	judged, above := 0, 0
	for _, r := range f {
		if n := r.Counts[name]; n != nil {
			sum += *n
			if judged++; *n > 0 {
				above++
			}
		}
	}
	switch {
	case judged == 0:
		return noFigure
	case judged < len(f):
		return fmt.Sprintf("%s (judged in %d)", figure.Count(sum), judged)
	case len(f) == 1 || sum == 0:
		return figure.Count(sum)
	}
	return fmt.Sprintf("%s (in %d)", figure.Count(sum), above)
}

// verdicts returns the verdict of one run; of several "k of n" and the other verdicts.
func verdicts(f []results.Report, st terminal.Style) string {
	if len(f) == 1 {
		return st.Verdict(f[0].Verdict)
	}
	n := map[results.Verdict]int{}
	for _, r := range f {
		n[r.Verdict]++
	}
	parts := []string{fmt.Sprintf("%d of %d %s", n[results.Pass], len(f), st.Verdict(results.Pass))}
	for _, v := range []results.Verdict{results.Unknown, results.Fail} {
		if n[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], st.Verdict(v)))
		}
	}
	return strings.Join(parts, ", ")
}

// whyNot says why runs of a scenario did not pass, each reason once.
func whyNot(b *terminal.Text, f []results.Report) {
	var told []string
	for _, r := range f {
		if r.Verdict == results.Pass || len(r.Reasons) == 0 {
			continue
		}
		text := fmt.Sprintf("%s is %s: %s", r.Scenario, r.Verdict, strings.Join(r.Reasons, "; "))
		if !slices.Contains(told, text) {
			told = append(told, text)
			reasons(b, text)
		}
	}
}
