package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/lockquake/lockquake/results"
)

var matrixColumns = []struct{ head, count string }{
	{"double grants", "double_grants"},
	{"overlapping holds", "overlapping_holds"},
	{"stale writes", "stale_writes"},
	{"fence saves", "fence_saves"},
	{"stuck", "stuck_locks"},
}

// Matrix writes one row for each of several runs, and for each scenario that was repeated in how many of its runs the
// expectations were met.
func Matrix(w io.Writer, rs []results.Report, opts ...Option) error {
	st := newStyle(opts)
	rows := [][]string{{"scenario"}}
	for _, c := range matrixColumns {
		rows[0] = append(rows[0], c.head)
	}
	missing := false
	for _, r := range rs {
		row := []string{r.Scenario}
		for _, c := range matrixColumns {
			n := r.Counts[c.count]
			if n == nil {
				missing = true
				row = append(row, "-")
				continue
			}
			row = append(row, count(*n))
		}
		rows = append(rows, row)
	}
	var plain, b bytes.Buffer
	for i := range rows {
		rows[i] = append(rows[i], "#") // where the verdict goes: colour codes must not be measured
	}
	table(&plain, 0, rows)
	for i, line := range bytes.Split(bytes.TrimSuffix(plain.Bytes(), []byte("\n")), []byte("\n")) {
		verdict := "verdict"
		if i > 0 {
			verdict = st.verdict(rs[i-1].Verdict)
		}
		b.Write(bytes.TrimSuffix(line, []byte("#")))
		b.WriteString(verdict + "\n")
	}
	if missing {
		b.WriteString("  - is not judged\n")
	}
	b.WriteString(repeats(rs))
	_, err := w.Write(b.Bytes())
	return err
}

// repeats says "k of n" for each scenario that was run more than once.
func repeats(rs []results.Report) string {
	var names []string
	met, runs := map[string]int{}, map[string]int{}
	for _, r := range rs {
		if !slices.Contains(names, r.Scenario) {
			names = append(names, r.Scenario)
		}
		runs[r.Scenario]++
		if r.Verdict == results.Pass {
			met[r.Scenario]++
		}
	}
	out := ""
	for _, n := range names {
		if runs[n] > 1 {
			out += fmt.Sprintf("%s: %d of %d\n", n, met[n], runs[n])
		}
	}
	return out
}
