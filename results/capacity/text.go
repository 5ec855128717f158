package capacity

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/terminal"
)

// Text writes the report for a terminal, 100 columns wide unless an option says otherwise.
func Text(w io.Writer, a Analysis, opts ...terminal.Option) error {
	var b bytes.Buffer
	for _, answer := range a.Answers() {
		fmt.Fprintln(&b, answer.Text)
	}
	fmt.Fprintf(&b, "%s\n", a.Title())
	for _, line := range a.head() {
		fmt.Fprintln(&b, "  "+line)
	}
	for _, p := range a.Paragraphs() {
		fmt.Fprintf(&b, "\n%s\n", p)
	}
	overview := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i, row := range a.overview() {
		// the name is long
		fmt.Fprintf(overview, "%s  %s\t%s\n", map[bool]string{true: "\n"}[i == 0], strings.Join(row[1:], "\t"), row[0])
	}
	_ = overview.Flush() // b is a buffer
	for _, c := range a.Curves {
		fmt.Fprintf(&b, "\n%s\n", c.Name())
		if p := c.policy(); p != "" {
			fmt.Fprintln(&b, "  "+p)
		}
		table{"users", c.Closed}.text(&b)
		if len(c.Closed) > 0 {
			if c.Fit != nil {
				fmt.Fprintf(&b, "  %s\n  scalability law: %s\n", c.bend(), c.Fit.law())
			} else {
				fmt.Fprintf(&b, "  scalability law: not fitted: %s\n", c.NoFit)
			}
		}
		table{"offered/s", c.Open}.text(&b)
		if a.Objective != nil {
			fmt.Fprintf(&b, "  %s\n", a.plan(c))
		}
		for _, more := range []struct {
			title string
			lines []string
		}{{"the limit:", c.limits()}, {"omitted or marked:", c.omitted()}} {
			if len(more.lines) > 0 {
				fmt.Fprintf(&b, "  %s\n    %s\n", more.title, strings.Join(more.lines, "\n    "))
			}
		}
	}
	fmt.Fprintf(&b, "\n%s\n", a.legend())
	if a.Command != "" {
		for line := range strings.Lines(a.Command) {
			fmt.Fprintf(&b, "again: %s\n", strings.TrimSpace(line))
		}
	}
	return terminal.Fold(w, b.String(), opts...)
}

// text writes readings: first the columns with the answer, which fit into 80 columns, then the others.
func (t table) text(w io.Writer) {
	if len(t.Readings) == 0 {
		return
	}
	open, tried := t.Open(), t.Tried()
	only := func(shown bool, cells ...string) []string {
		if shown {
			return cells
		}
		return nil
	}
	answer, bounds, rest := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight),
		tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight),
		tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	write := func(to io.Writer, last string, cells ...[]string) {
		fmt.Fprintf(to, "%s\t %s\n", strings.Join(slices.Concat(cells...), "\t"), last)
	}
	write(answer, "limit", []string{t.First, "cycles/s"}, only(t.Writes(), "writes/s", "lost"), []string{"p50", "p99"},
		only(tried, "kept it"))
	write(bounds, "n", []string{t.First, "cycles/s"}, only(t.Writes(), "writes/s"), []string{"p50", "p99"})
	write(rest, "acquires", []string{t.First, "p99.9", "p99.99"}, only(open, "unserved", "late", "own lag"),
		only(t.Trips(), "RTT"))
	some := false
	for _, r := range t.Readings {
		x := r.X()
		if len(r.Marks) > 0 {
			x += "*"
		}
		some = some || r.Cycles.N > 1
		p50, p99 := r.LatencyParts("p50"), r.LatencyParts("p99")
		write(answer, strings.TrimPrefix(string(r.Limit.Cause), "the "), []string{x, r.Cycles.Parts()[0]},
			only(t.Writes(), r.Writes.Parts()[0], r.LostText()), []string{p50[0], p99[0]},
			only(tried, r.Tried.String()))
		write(bounds, strconv.Itoa(r.Samples), []string{x, r.Cycles.Parts()[1]}, only(t.Writes(), r.Writes.Parts()[1]),
			[]string{p50[1], p99[1]})
		write(rest, figure.Count(r.Acquires), []string{x, r.latency("p999"), r.latency("p9999")},
			only(open, r.Unserved.String(), r.LateStarts.String(), span(r.Late)), only(t.Trips(), span(r.Trip)))
	}
	_ = answer.Flush() // w is a buffer
	if some {
		fmt.Fprintln(w, "  bounds:")
		_ = bounds.Flush()
	}
	fmt.Fprintln(w, "  the tail, and the load generator:")
	_ = rest.Flush()
}

// latency formats a quantile without its bounds; "-" with too few acquires.
func (r Reading) latency(name string) string {
	if i, ok := r.Latency[name]; ok {
		return figure.Milli(i.Mid)
	}
	return "-"
}

// legend explains the tables.
func (a Analysis) legend() string {
	out := []string{
		"Figures are medians over n samples.", a.Brackets(), "Latencies are those of the acquire.",
		tails(),
	}
	if slices.ContainsFunc(a.Curves, func(c Curve) bool { return len(c.Open) > 0 }) {
		out = append(out, openWords)
	}
	out = append(out, "*: marked, never fitted.")
	return strings.Join(slices.DeleteFunc(out, func(s string) bool { return s == "" }), " ")
}
