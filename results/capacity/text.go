package capacity

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/lockquake/lockquake/results/report"
)

// Text writes the report for a terminal, 100 columns wide unless an option says otherwise.
func Text(w io.Writer, a Analysis, opts ...report.Option) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Capacity of %s\n", a.Scenario)
	for _, line := range a.head() {
		fmt.Fprintln(&b, "  "+line)
	}
	for _, p := range a.Paragraphs() {
		fmt.Fprintf(&b, "\n%s\n", p)
	}
	for _, c := range a.Curves {
		fmt.Fprintf(&b, "\n%s\n", c.Name())
		c.table(&b, "users", c.Closed)
		if len(c.Closed) > 0 {
			if c.Fit != nil {
				fmt.Fprintf(&b, "  %s\n  scalability law: %s\n", c.bend(), c.Fit.law())
			} else {
				fmt.Fprintf(&b, "  scalability law: none is fitted: %s\n", c.NoFit)
			}
		}
		c.table(&b, "offered/s", c.Open)
		if a.Objective != nil {
			fmt.Fprintf(&b, "  %s\n", a.plan(c))
		}
		for _, more := range []struct {
			title string
			lines []string
		}{{"the limit:", c.limits()}, {"left out or marked:", c.omitted()}} {
			if len(more.lines) > 0 {
				fmt.Fprintf(&b, "  %s\n    %s\n", more.title, strings.Join(more.lines, "\n    "))
			}
		}
	}
	fmt.Fprintln(&b, "\ncycles/s: medians, with 95 % intervals from 6 samples on, else from the lowest to the highest; latencies of the acquire: medians; n: samples used; *: marked, never fitted")
	if a.Command != "" {
		for line := range strings.Lines(a.Command) {
			fmt.Fprintf(&b, "again: %s\n", strings.TrimSpace(line))
		}
	}
	return report.Fold(w, b.String(), opts...)
}

// table writes readings.
func (c Curve) table(w io.Writer, first string, readings []Reading) {
	if len(readings) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tcycles/s\tp50\tp99\tp99.9\tp99.99\tn\t limit\n", first)
	for _, r := range readings {
		x := number(float64(r.Users))
		if r.Rate > 0 {
			x = number(r.Rate)
		}
		mark := ""
		if len(r.Marks) > 0 {
			mark = "*"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t %s\n", x+mark, r.Cycles, r.latency("p50"), r.latency("p99"), r.latency("p999"), r.latency("p9999"), r.Samples, strings.TrimPrefix(string(r.Limit.Cause), "the "))
	}
	_ = t.Flush() // w is a buffer
}

// latency writes the median of a quantile.
func (r Reading) latency(name string) string {
	if i, ok := r.Latency[name]; ok {
		return milli(i.Mid)
	}
	return "-"
}
