package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/terminal"
)

// Text writes the report of one run for a terminal. The last line of the whole report is the run directory.
func Text(w io.Writer, r results.Report, opts ...terminal.Option) error {
	st := terminal.NewStyle(opts)
	if !st.Whole {
		return short(w, r, st)
	}
	b := st.Text()
	fmt.Fprintf(b, "%s: %s\n", r.Scenario, st.Verdict(r.Verdict))
	b.Paragraph("  ", r.Claim)
	for _, reason := range r.Reasons {
		reasons(b, reason)
	}
	textExpectations(b, r, st)
	textUncovered(b, also, r.Uncovered, st)
	textProperties(b, r)
	textCounts(b, r)
	textLatency(b, r)
	textFaults(b, r)
	if len(r.Warnings) > 0 {
		fmt.Fprint(b, "\nwarnings\n")
		for _, x := range r.Warnings {
			b.Paragraph("  - ", x)
		}
	}
	textWorld(b, r)
	if r.Replay != "" {
		fmt.Fprintf(b, "again   %s\n", r.Replay)
		b.Paragraph("        ", interleavings)
	}
	if r.Drawn != "" {
		fmt.Fprintf(b, "drawn   %s\n", r.Drawn)
	}
	fmt.Fprintf(b, "run     %s\n", r.RunDir)
	_, err := w.Write(b.Bytes())
	return err
}

// interleavings says what a replay repeats and what it does not.
const interleavings = "(the same schedule; how users, servers and packets interleave does not repeat)"

// reasons writes the reasons for a verdict. Each of several joined errors has its own line; otherwise they would run
// together.
func reasons(b *terminal.Text, text string) {
	lead := "  ! "
	for line := range strings.Lines(text) {
		b.Paragraph(lead, line)
		lead = "    "
	}
}

func textExpectations(b *terminal.Text, r results.Report, st terminal.Style) {
	if len(r.Expectations) == 0 {
		return
	}
	b.WriteString("\nexpectations\n")
	rows := [][]string{{"name", "want", "got", "verdict"}}
	for _, e := range r.Expectations {
		rows = append(rows, []string{e.Name, e.Want, got(e), strings.ToUpper(string(e.Verdict))})
	}
	// Colours go in after the columns are aligned: their codes have no width.
	for i, line := range slices.Collect(strings.Lines(terminal.Indent(figure.Table(rows).Text()))) {
		if i == 0 {
			b.WriteString(line)
			continue
		}
		e := r.Expectations[i-1]
		line = strings.TrimSuffix(line, strings.ToUpper(string(e.Verdict))+"\n")
		b.WriteString(line + st.Verdict(e.Verdict) + "\n") // the reasons are above
	}
}

// also is the prefix of uncovered counts in the report of one run.
const also = "also    "

// textUncovered warns of counts that mean trouble and have no expectation.
func textUncovered(b *terminal.Text, lead string, u results.Uncovered, st terminal.Style) {
	if len(u) == 0 {
		return
	}
	one := st.Text()
	one.Paragraph(lead, u.String()+" (no expectation covers it)")
	b.WriteString(st.Amber(strings.TrimSuffix(one.String(), "\n")) + "\n")
}

// textProperties writes what the run shows of the lock.
func textProperties(b *terminal.Text, r results.Report) {
	for _, p := range r.Properties {
		b.Paragraph("lock    ", p.String())
	}
}

// order puts the counts that people ask for first, then the others by name.
func order[V any](m map[string]V, first []string) []string {
	var names []string
	for _, n := range first {
		if _, ok := m[n]; ok {
			names = append(names, n)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// foremost returns the counts, or the measures, that a report shows first.
func foremost(of func(results.CheckerKind) []results.Quantity) []results.Quantity {
	var out []results.Quantity
	for _, k := range checkers.All() {
		for _, q := range of(k) {
			if q.First > 0 {
				out = append(out, q)
			}
		}
	}
	slices.SortFunc(out, func(a, b results.Quantity) int { return cmp.Compare(a.First, b.First) })
	return out
}

var (
	countOrder   = named(foremost(func(k results.CheckerKind) []results.Quantity { return k.Counts }))
	measureOrder = named(foremost(func(k results.CheckerKind) []results.Quantity { return k.Measures }))
)

func named(qs []results.Quantity) []string {
	var out []string
	for _, q := range qs {
		out = append(out, q.Name)
	}
	return out
}

// countNames lists the counts that a report shows: the usual ones always, the others if they were judged.
func countNames(r results.Report) []string {
	return slices.DeleteFunc(order(r.Counts, countOrder), func(n string) bool {
		return r.Counts[n] == nil && !slices.Contains(countOrder, n)
	})
}

// measureNames lists the measures that a report shows, in the same way.
func measureNames(r results.Report) []string {
	return slices.DeleteFunc(order(r.Measures, measureOrder), func(n string) bool {
		return r.Measures[n] == nil && !slices.Contains(measureOrder, n)
	})
}

// textCounts writes counts and measures side by side.
func textCounts(b *terminal.Text, r results.Report) {
	b.WriteString("\n")
	among := fmt.Sprintf("found in %s grants, %s events, %s accesses of the resource", figure.Count(r.Judged.Grants),
		figure.Count(r.Judged.Events), figure.Count(r.Judged.Effects))
	if r.NoLock {
		among = fmt.Sprintf("found in %s accesses of the resource, %s events; there is no lock",
			figure.Count(r.Judged.Effects), figure.Count(r.Judged.Events))
	}
	b.Paragraph("", among)
	counts, measures := countNames(r), measureNames(r)
	var rows [][]string
	for i := range max(len(counts), len(measures)) {
		row := []string{"", "", "", ""}
		if i < len(counts) {
			row[0], row[1] = counts[i], judged(r.Counts[counts[i]])
		}
		if i < len(measures) {
			row[2], row[3] = "  "+measures[i], measured(r.Measures[measures[i]])
		}
		rows = append(rows, row)
	}
	beside := terminal.Indent(figure.Table(rows).Text())
	if slices.ContainsFunc(slices.Collect(strings.Lines(beside)),
		func(l string) bool { return len([]rune(l)) > b.Width }) {
		var below [][]string
		for _, side := range []int{0, 2} {
			for _, r := range rows {
				if r[side] != "" {
					below = append(below, []string{strings.TrimSpace(r[side]), r[side+1]})
				}
			}
		}
		beside = terminal.Indent(figure.Table(below).Text())
	}
	b.WriteString(beside)
	for _, s := range r.Strength {
		b.Paragraph("  - ", s)
	}
	failoverLine(b, "  - ", r)
}

func textLatency(b *terminal.Text, r results.Report) {
	if len(r.Latency) == 0 {
		return
	}
	rows := [][]string{{"", "n", "p50", "p90", "p99", "p99.9", "max"}}
	for _, n := range order(r.Latency, results.Operations) {
		rows = append(rows, append([]string{n}, quantiles(r.Latency[n])...))
	}
	b.WriteString("\nlatency in ms\n")
	b.WriteString(terminal.Indent(figure.Table(rows).TextRight()))
}

// quantiles formats the cells of one distribution; one without samples has no figures.
func quantiles(q results.Quantiles) []string {
	cells := []string{figure.Count(q.N)}
	q = shown(q)
	for _, f := range []*float64{q.P50, q.P90, q.P99, q.P999, q.Max} {
		if f == nil {
			cells = append(cells, "-")
			continue
		}
		cells = append(cells, figure.Number(*f))
	}
	return cells
}

// shown removes the quantiles with too few samples.
func shown(q results.Quantiles) results.Quantiles {
	for level, f := range map[float64]**float64{0.5: &q.P50, 0.9: &q.P90, 0.95: &q.P95, 0.99: &q.P99, 0.999: &q.P999} {
		if q.N < figure.Samples(level) {
			*f = nil
		}
	}
	if q.N == 0 {
		q.Max = nil
	}
	return q
}

// textWorld describes the run's environment, and how long its setup and teardown took.
func textWorld(b *terminal.Text, r results.Report) {
	b.WriteString("\n")
	lead := "client  "
	for _, line := range clientLines(r) {
		b.Paragraph(lead, line)
		lead = "        "
	}
	var on []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		on = append(on, name+" "+r.Versions[name])
	}
	if len(on) > 0 {
		b.Paragraph("on      ", strings.Join(on, ", "))
	}
	var took []string
	for _, t := range []struct{ name, text string }{
		{results.TimeUp, "%s to start up"},
		{results.TimeFirstGrant, "%s from the start to the first grant"},
		{results.TimeDown, "%s to tear down"},
	} {
		if ms, ok := r.Timings[t.name]; ok {
			took = append(took, fmt.Sprintf(t.text, figure.Duration(ms*1e6)))
		}
	}
	if len(took) > 0 {
		b.Paragraph("took    ", strings.Join(took, ", "))
	}
	if r.Clocks != nil {
		b.Paragraph("clocks  ", r.Clocks.Text())
	}
	switch {
	case r.Kept:
		var seen []string
		for _, p := range r.KeptProof {
			seen = append(seen, p.What)
		}
		b.Paragraph("kept    ", "the servers are those of an earlier run and were verified clean: "+
			strings.Join(seen, ", "))
	case r.Fresh != "":
		b.Paragraph("fresh   ", "the servers of the previous run were not kept: "+r.Fresh)
	}
}
