package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/figure"
)

// textWidth is the number of columns that the text report keeps to where it is not told another; only a path or a
// command may be longer.
const textWidth = 100

// Option changes how text is written.
type Option func(*style)

type style struct {
	escape string
	whole  bool
	width  int
	told   bool // the width
}

// Width folds at that many columns.
func Width(columns int) Option { return func(s *style) { s.width, s.told = columns, true } }

// Whole writes all counts, latencies, receipts and versions. Without it a passing run has 15 lines, with those of
// its report and its directory.
func Whole() Option { return func(s *style) { s.whole = true } }

// sheet is text that is folded at some width.
type sheet struct {
	bytes.Buffer
	width int
}

// Colour marks verdicts with the colour codes of terminals; without it the text is plain. The codes begin with escape:
// the escape character, or what the writer takes for it.
func Colour(escape string) Option { return func(s *style) { s.escape = escape } }

func newStyle(opts []Option) style {
	s := style{width: textWidth}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// verdict writes a verdict in capitals, in its colour where colours are asked for.
func (s style) verdict(v results.Verdict) string {
	code := amber
	switch v {
	case results.Pass, results.Clean:
		code = "32"
	case results.Fail, results.Violated:
		code = "31"
	}
	return s.paint(code, strings.ToUpper(string(v)))
}

// amber is the colour code of what is open, or deserves a look.
const amber = "33"

// paint writes text in bold and in a colour, where colours are asked for.
func (s style) paint(code, text string) string {
	if s.escape == "" {
		return text
	}
	return s.escape + "[1;" + code + "m" + text + s.escape + "[0m"
}

// Text writes the report of one run for a terminal. The last line of the whole report is the run directory.
func Text(w io.Writer, r results.Report, opts ...Option) error {
	st := newStyle(opts)
	if !st.whole {
		return short(w, r, st)
	}
	b := sheet{width: st.width}
	fmt.Fprintf(&b, "%s: %s\n", r.Scenario, st.verdict(r.Verdict))
	paragraph(&b, "  ", r.Claim)
	for _, reason := range r.Reasons {
		reasons(&b, reason)
	}
	textExpectations(&b, r, st)
	textUncovered(&b, also, r.Uncovered, st)
	textCounts(&b, r)
	textLatency(&b, r)
	textFaults(&b, r)
	if len(r.Warnings) > 0 {
		fmt.Fprint(&b, "\nwarnings\n")
		for _, x := range r.Warnings {
			paragraph(&b, "  - ", x)
		}
	}
	textWorld(&b, r)
	if r.Replay != "" {
		fmt.Fprintf(&b, "again   %s\n", r.Replay)
		paragraph(&b, "        ", interleavings)
	}
	if r.Drawn != "" {
		fmt.Fprintf(&b, "drawn   %s\n", r.Drawn)
	}
	fmt.Fprintf(&b, "run     %s\n", r.RunDir)
	_, err := w.Write(b.Bytes())
	return err
}

// interleavings says what a replay repeats and what not.
const interleavings = "(the same schedule; how users, servers and packets interleave does not repeat)"

// paragraph writes wrapped lines; those after the first are indented as deep as the lead of the first.
func paragraph(b *sheet, lead, text string) {
	indent := len([]rune(lead))
	for _, line := range wrap(text, max(b.width-indent, 10)) {
		b.WriteString(lead + line + "\n")
		lead = strings.Repeat(" ", indent)
	}
}

// Glossary writes names, and beside each what it means. Where the width is told, that is folded.
func Glossary(w io.Writer, entries [][2]string, opts ...Option) error {
	st, longest := newStyle(opts), 0
	for _, e := range entries {
		longest = max(longest, len(e[0]))
	}
	b := sheet{width: st.width}
	for _, e := range entries {
		lead, text := fmt.Sprintf("%-*s  ", longest, e[0]), strings.Join(strings.Fields(e[1]), " ")
		switch {
		case !st.told:
			fmt.Fprintln(&b, lead+text)
		case len(lead) > b.width/2: // the names leave no room
			b.WriteString(e[0] + "\n")
			paragraph(&b, "    ", text)
		default:
			paragraph(&b, lead, text)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Fold writes lines that are too long on several. Those after the first stand below the last column, where that leaves
// half of the width, else a little deeper.
func Fold(w io.Writer, text string, opts ...Option) error {
	b := sheet{width: newStyle(opts).width}
	for line := range strings.Lines(text) {
		b.fold(strings.TrimRight(line, "\n"))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// lastColumn is what stands before the last column of a line of a table.
var lastColumn = regexp.MustCompile(`^.*\S {2,}`)

// fold writes a line. The spaces within stay, so that columns do.
func (b *sheet) fold(line string) {
	deep := 2 + len(line) - len(strings.TrimLeft(line, " "))
	if before := len([]rune(lastColumn.FindString(line))); before > 0 && before <= b.width/2 {
		deep = before
	}
	rest, lead := []rune(line), 0
	for {
		cut := lastSpace(rest, lead, b.width)
		if len(rest) <= b.width || cut < 0 {
			b.WriteString(strings.TrimRight(string(rest), " ") + "\n")
			return
		}
		b.WriteString(strings.TrimRight(string(rest[:cut]), " ") + "\n")
		lead = min(deep, b.width/2)
		rest = []rune(strings.Repeat(" ", lead) + strings.TrimLeft(string(rest[cut:]), " "))
	}
}

// lastSpace is where a line can be broken: the last space up to the width that a word stands before, else the first
// behind it; -1: nowhere.
func lastSpace(line []rune, lead, width int) int {
	for lead < len(line) && line[lead] == ' ' {
		lead++
	}
	for i := min(width, len(line)-1); i > lead; i-- {
		if line[i] == ' ' {
			return i
		}
	}
	for i := max(width, lead); i < len(line); i++ {
		if line[i] == ' ' {
			return i
		}
	}
	return -1
}

// reasons writes why a run is what it is. Each of several joined errors has a line of its own, or they would run
// together.
func reasons(b *sheet, text string) {
	lead := "  ! "
	for line := range strings.Lines(text) {
		paragraph(b, lead, line)
		lead = "    "
	}
}

// indented writes lines two spaces from the margin.
func indented(b io.StringWriter, lines string) {
	for line := range strings.Lines(lines) {
		_, _ = b.WriteString("  " + line)
	}
}

func textExpectations(b *sheet, r results.Report, st style) {
	if len(r.Expectations) == 0 {
		return
	}
	b.WriteString("\nexpectations\n")
	rows := [][]string{{"name", "want", "got", "verdict"}}
	for _, e := range r.Expectations {
		rows = append(rows, []string{e.Name, e.Want, got(e), strings.ToUpper(string(e.Verdict))})
	}
	var plain bytes.Buffer
	indented(&plain, figure.Table(rows).Text())
	// Colours go in after the columns are aligned: their codes have no width.
	for i, line := range slices.Collect(strings.Lines(plain.String())) {
		if i == 0 {
			b.WriteString(line)
			continue
		}
		e := r.Expectations[i-1]
		line = strings.TrimSuffix(line, strings.ToUpper(string(e.Verdict))+"\n")
		b.WriteString(line + st.verdict(e.Verdict) + "\n") // why not stands above
	}
}

// also leads what a report of one run says of uncovered counts.
const also = "also    "

// textUncovered warns of counts of trouble that no expectation covers.
func textUncovered(b *sheet, lead string, u results.Uncovered, st style) {
	if len(u) == 0 {
		return
	}
	one := sheet{width: b.width}
	paragraph(&one, lead, u.String()+" (no expectation covers it)")
	b.WriteString(st.paint(amber, strings.TrimSuffix(one.String(), "\n")) + "\n")
}

// order puts the counts that people ask for first, and the others after them by name.
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

// foremost are the counts, or the measures, that a report shows first.
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

// countNames lists the counts that a report shows: the usual ones always, the others where they were judged.
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
func textCounts(b *sheet, r results.Report) {
	b.WriteString("\n")
	among := fmt.Sprintf("found among %s grants, %s events, %s accesses of the resource", figure.Count(r.Judged.Grants),
		figure.Count(r.Judged.Events), figure.Count(r.Judged.Effects))
	if r.NoLock {
		among = fmt.Sprintf("found among %s accesses of the resource, %s events; there is no lock",
			figure.Count(r.Judged.Effects), figure.Count(r.Judged.Events))
	}
	paragraph(b, "", among)
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
	var beside bytes.Buffer
	indented(&beside, figure.Table(rows).Text())
	if slices.ContainsFunc(slices.Collect(strings.Lines(beside.String())),
		func(l string) bool { return len([]rune(l)) > b.width }) {
		beside.Reset()
		var below [][]string
		for _, side := range []int{0, 2} {
			for _, r := range rows {
				if r[side] != "" {
					below = append(below, []string{strings.TrimSpace(r[side]), r[side+1]})
				}
			}
		}
		indented(&beside, figure.Table(below).Text())
	}
	b.Write(beside.Bytes())
	for _, s := range r.Strength {
		paragraph(b, "  - ", s)
	}
	failoverLine(b, "  - ", r)
}

func textLatency(b *sheet, r results.Report) {
	if len(r.Latency) == 0 {
		return
	}
	rows := [][]string{{"", "n", "p50", "p90", "p99", "p99.9", "max"}}
	for _, n := range order(r.Latency, results.Operations) {
		rows = append(rows, append([]string{n}, quantiles(r.Latency[n])...))
	}
	b.WriteString("\nlatency in ms\n")
	indented(b, figure.Table(rows).TextRight())
}

// quantiles writes the cells of one distribution; one without samples has no figures.
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

// shown leaves out the quantiles that too few samples tell.
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

// textWorld says what the run ran on and how long that took to come and go.
func textWorld(b *sheet, r results.Report) {
	b.WriteString("\n")
	lead := "client  "
	for _, line := range clientLines(r) {
		paragraph(b, lead, line)
		lead = "        "
	}
	var on []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		on = append(on, name+" "+r.Versions[name])
	}
	if len(on) > 0 {
		paragraph(b, "on      ", strings.Join(on, ", "))
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
		paragraph(b, "took    ", strings.Join(took, ", "))
	}
	if r.Clocks != nil {
		paragraph(b, "clocks  ", r.Clocks.Text())
	}
	switch {
	case r.Kept:
		var seen []string
		for _, p := range r.KeptProof {
			seen = append(seen, p.What)
		}
		paragraph(b, "kept    ", "the servers are those of an earlier run, and were seen to be clean: "+
			strings.Join(seen, ", "))
	case r.Fresh != "":
		paragraph(b, "fresh   ", "the servers of the run before were not kept: "+r.Fresh)
	}
}
