package compare

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockquake/lockquake/results/report"
)

// Text writes a comparison for people. Figures that are zero in every run are left out, unless reports show them first.
func Text(w io.Writer, r Result) error {
	for i, dirs := range [][]string{r.A, r.B} {
		var verdicts []string
		for _, name := range slices.Sorted(maps.Keys(r.Verdicts)) {
			if n := r.Verdicts[name][i]; n > 0 {
				verdicts = append(verdicts, fmt.Sprintf("%d %s", n, name))
			}
		}
		if len(dirs) > 0 {
			fmt.Fprintf(w, "%c: %d runs of %s: %s\n", 'A'+rune(i), len(dirs), r.Ran[i], strings.Join(verdicts, ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Differs)) {
		d := r.Differs[name]
		fmt.Fprintf(w, "%s: %s in A, %s in B\n", name, spoken(d.A), spoken(d.B))
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	few, wide := "", true
	head := "figure\tA"
	if len(r.B) > 0 {
		head += "\tB\tchange\tp"
	}
	fmt.Fprintln(t, head)
	for _, f := range r.Figures {
		if f.First == 0 && f.A.Above == 0 && (f.B == nil || f.B.Above == 0) {
			continue
		}
		change, p := "", ""
		switch {
		case f.P == nil:
		case f.TooFew != "":
			p, few = fmt.Sprintf("%.3f *", *f.P), f.TooFew
		default:
			p = fmt.Sprintf("%.3f", *f.P)
		}
		if f.Change != nil && f.P != nil {
			change = fmt.Sprintf("%+.1f %%", 100**f.Change)
			if *f.P >= Alpha {
				change = "~"
			}
		}
		wide = wide && (f.Count || f.A.Low != nil && (f.B == nil || f.B.Low != nil))
		fmt.Fprintf(t, "%s\t%s", f.Name, f.cell(f.A))
		if f.B != nil {
			fmt.Fprintf(t, "\t%s\t%s\t%s", f.cell(*f.B), change, p)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t, "\nmedians, with their 95 % intervals; n runs judged it; ~ is no difference at p < 0.05")
	if !wide {
		fmt.Fprintln(t, "a median without an interval is of too few runs: an interval needs 6")
	}
	if few != "" {
		fmt.Fprintln(t, "* too few runs to tell: "+few)
	}
	return t.Flush()
}

func spoken(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, " and ")
}

// cell is one side of a figure. Of a count that means something it tells in how many runs it is.
func (f Figure) cell(s Side) string {
	switch {
	case len(s.Values) == 0:
		return "not judged"
	case f.Count && f.Tone != "":
		return fmt.Sprintf("%s, in %d of %d runs", report.Figures(s.Median), s.Above, len(s.Values))
	case s.Low == nil:
		return fmt.Sprintf("%s, n=%d", report.Figures(s.Median), len(s.Values))
	}
	return fmt.Sprintf("%s (%s to %s), n=%d", report.Figures(s.Median), report.Figures(*s.Low), report.Figures(*s.High), len(s.Values))
}

// Bench writes the runs in the format of Go's benchmarks, which benchstat reads: a line for each run, whose iterations are the grants that
// were judged. The key group tells the groups apart: benchstat -col group.
func Bench(w io.Writer, a, b []Run) error {
	for i, runs := range [][]Run{a, b} {
		for _, r := range runs {
			name := strings.Join(strings.Fields("BenchmarkRun/scenario="+r.Report.Scenario+"/lock="+r.Report.Lock), "_")
			_, err := fmt.Fprintf(w, "goos: %s\ngoarch: %s\nkernel: %s\nbackend: %s\nprovider: %s\ngroup: %c\n%s %d",
				r.Env.Host["os"], r.Env.Host["arch"], r.Env.Host["kernel"], r.Report.Backend, r.Report.Provider, 'A'+rune(i), name, r.Report.Judged.Grants)
			if err != nil {
				return err
			}
			for _, m := range slices.Sorted(maps.Keys(r.Report.Measures)) {
				if v := r.Report.Measures[m]; v != nil {
					fmt.Fprintf(w, " %g %s", *v, m)
				}
			}
			for _, c := range slices.Sorted(maps.Keys(r.Report.Counts)) {
				if v := r.Report.Counts[c]; v != nil {
					fmt.Fprintf(w, " %d %s", *v, c)
				}
			}
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
	}
	return nil
}
