package compare

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/sheet"
)

// Text writes a comparison of runs for people.
func (r *Result) Text(w io.Writer) error { return text(w, r.Page()) }

// Page returns the page of a comparison of runs. It leaves out figures that are zero in every run, unless reports
// always show them.
func (r *Result) Page() sheet.Page {
	p := sheet.Page{Title: "Runs side by side", Answers: r.answered()}
	for i, dirs := range [][]string{r.A, r.B} {
		var verdicts []string
		for _, name := range slices.Sorted(maps.Keys(r.Verdicts)) {
			if n := r.Verdicts[name][i]; n > 0 {
				verdicts = append(verdicts, fmt.Sprintf("%d %s", n, name))
			}
		}
		if len(dirs) > 0 {
			p.Head = append(p.Head, fmt.Sprintf("%c: %s of %s: %s; %s", group(i), figure.Of(len(dirs), "run"), r.Ran[i],
				strings.Join(verdicts, ", "), where(dirs)))
		}
	}
	p.Head = append(p.Head, r.differing()...)
	t := newTable(len(r.B) > 0, "figure")
	for _, f := range r.Figures {
		if f.First > 0 || f.A.Above > 0 || f.B != nil && f.B.Above > 0 {
			t.row(f, f.Name)
		}
	}
	p.Tables = []sheet.Table{t.whole("", Alpha)}
	return p
}

// text writes a page for a terminal: what was compared, the tables, and the answers last.
func text(w io.Writer, p sheet.Page) error {
	for _, line := range p.Head {
		fmt.Fprintln(w, line)
	}
	fmt.Fprintln(w)
	for i, t := range p.Tables {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if t.Title != "" {
			fmt.Fprintln(w, t.Title)
		}
		if _, err := io.WriteString(w, figure.Table(slices.Concat(t.Heads, t.Rows)).Text()); err != nil {
			return err
		}
		for i, line := range t.Below {
			if i == 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, line)
		}
	}
	for _, line := range p.Notes {
		fmt.Fprintln(w, line)
	}
	var err error
	for _, line := range p.Answers {
		_, err = fmt.Fprintf(w, "\n%s", line)
	}
	if len(p.Answers) > 0 {
		_, err = fmt.Fprintln(w)
	}
	return err
}

// group returns the letter of a group.
func group(i int) rune { return 'A' + rune(i) }

// where names the first directory of a group, so that a reader can identify it.
func where(dirs []string) string {
	if n := len(dirs) - 1; n > 0 {
		return fmt.Sprintf("%s and %d more", dirs[0], n)
	}
	return dirs[0]
}

// differing names the settings and versions that differ. Of a text of several lines only the name is shown.
func (s Sides) differing() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Settings)) {
		d := s.Settings[name]
		if strings.Contains(strings.Join(append(slices.Clone(d.A), d.B...), ""), "\n") {
			out = append(out, name+": differs between A and B")
			continue
		}
		out = append(out, fmt.Sprintf("%s: %s in A, %s in B", name, spoken(d.A), spoken(d.B)))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Differs)) {
		d := s.Differs[name]
		out = append(out, fmt.Sprintf("%s: %s in A, %s in B", name, spoken(d.A), spoken(d.B)))
	}
	return out
}

// answered lists the results of the demands.
func (s Sides) answered() (out []string) {
	for _, one := range s.Answers {
		out = append(out, fmt.Sprintf("%s  %s: %s", strings.ToUpper(string(one.Verdict)), one.Demand, one.Reason))
	}
	return out
}

// table is a table of figures. It remembers what needs an explanation below it.
type table struct {
	sheet.Table
	two  bool   // there are two groups
	few  string // the latest reason why there are too few runs
	thin bool   // a median has no interval
}

// newTable starts a table whose first columns have these headers.
func newTable(two bool, heads ...string) *table {
	heads = append(heads, "A")
	if two {
		heads = append(heads, "B", "change", "p")
	}
	return &table{Table: sheet.Table{Heads: [][]string{heads}}, two: two}
}

// row adds a figure after the cells of the first columns.
func (t *table) row(f Figure, first ...string) {
	change, p := "", ""
	switch {
	case f.P == nil:
	case f.TooFew != "":
		p, t.few = fmt.Sprintf("%.2g *", *f.P), f.TooFew
	default:
		p = fmt.Sprintf("%.2g", *f.P)
	}
	if f.Change != nil && f.P != nil {
		change = fmt.Sprintf("%+.1f %%", 100**f.Change)
		if !f.differs() {
			change = "~"
		}
	}
	t.thin = t.thin || !f.Count && (f.A.Low == nil || f.B != nil && f.B.Low == nil)
	row := append(slices.Clone(first), f.cell(f.A))
	if f.B != nil {
		row = append(row, f.cell(*f.B), change, p)
	}
	t.Rows = append(t.Rows, row)
}

// whole returns the table with its explanations.
func (t *table) whole(title string, alpha float64) sheet.Table {
	t.Title = title
	said := "medians with 95 % intervals; n is the number of runs with the measure"
	if t.two {
		said += fmt.Sprintf("; ~ means no difference at p < %.2g", alpha)
	}
	t.Below = append(t.Below, said)
	if t.thin {
		t.Below = append(t.Below, "a median without an interval has too few runs: an interval needs 6")
	}
	if t.few != "" {
		t.Below = append(t.Below, "* too few runs for a result: "+t.few)
	}
	return t.Table
}

// Text writes a comparison of sweeps for people.
func (r *SweepResult) Text(w io.Writer) error { return text(w, r.Page()) }

// Page returns the page of a comparison of sweeps.
func (r *SweepResult) Page() sheet.Page {
	p := sheet.Page{Title: "Sweeps side by side", Answers: r.answered(), Notes: r.Alone}
	for i, dirs := range [][]string{r.A, r.B} {
		if len(dirs) > 0 {
			p.Head = append(p.Head, fmt.Sprintf("%c: %s of %s; %s", group(i), figure.Of(len(dirs), "sweep"), r.Swept[i],
				where(dirs)))
		}
	}
	p.Head = append(p.Head, r.differing()...)
	for _, c := range r.Curves {
		p.Tables = append(p.Tables, c.tables(r.Alpha)...)
	}
	return p
}

// tables returns the points of a curve, and its summary.
func (c SweepCurve) tables(alpha float64) []sheet.Table {
	t := newTable(c.B != nil, "users", "figure")
	for _, p := range c.Points {
		at := fmt.Sprint(p.Users)
		if p.Rate > 0 {
			at += fmt.Sprintf(", %g/s", p.Rate)
		}
		if len(p.Marks) > 0 {
			at += "*"
		}
		for _, f := range p.Figures {
			if f.Count && f.A.Above == 0 && (f.B == nil || f.B.Above == 0) {
				continue
			}
			t.row(f, at, f.Name)
			at = ""
		}
	}
	points := t.whole(c.Name, alpha)
	for _, p := range c.Points {
		for _, mark := range p.Marks {
			points.Below = append(points.Below, fmt.Sprintf("* with %s, %s", p.at(), mark))
		}
	}
	wholes := []Whole{c.A}
	if c.B != nil {
		wholes = append(wholes, *c.B)
	}
	whole := sheet.Table{Heads: [][]string{{""}}, Rows: [][]string{
		{"best throughput"},
		{"its limit"},
		{"bends at"},
		{"highest at"},
		{"keeps the objective"},
	}}
	for i, one := range wholes {
		whole.Heads[0] = append(whole.Heads[0], string(group(i)))
		for j, cell := range []string{one.best(), one.Limit, one.Knee, one.Peak, one.keeps()} {
			whole.Rows[j] = append(whole.Rows[j], cell)
		}
	}
	return []sheet.Table{points, whole}
}

// best formats the maximum cycles a second of a closed loop.
func (w Whole) best() string {
	if w.Best == nil {
		return string(capacity.Unknown)
	}
	said := fmt.Sprintf("%s/s, %s", w.Best, figure.Of(w.BestUsers, "user"))
	if w.AtLeast {
		said = "at least " + said
	}
	return said
}

// keeps formats the highest rate that keeps the objective.
func (w Whole) keeps() string {
	if !w.Confirmed {
		return fmt.Sprintf("none confirmed (%s)", w.Why)
	}
	return figure.Number(w.Kept) + "/s"
}

func spoken(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, " and ")
}

// cell formats one side of a figure. For a count with a meaning it includes the number of runs that have it.
func (f Figure) cell(s Side) string {
	switch {
	case len(s.Values) == 0:
		return "not judged"
	case f.Count && f.Tone != "":
		return fmt.Sprintf("%s, in %d of %d runs", figure.Number(s.Median), s.Above, len(s.Values))
	case s.Low == nil:
		return fmt.Sprintf("%s, n=%d", figure.Number(s.Median), len(s.Values))
	}
	return fmt.Sprintf("%s (%s to %s), n=%d", figure.Number(s.Median), figure.Number(*s.Low), figure.Number(*s.High),
		len(s.Values))
}

// Bench writes the runs in the format of Go's benchmarks, which benchstat reads: a line for each run, with its judged
// grants as iterations. The key group distinguishes the groups: benchstat -col group.
func (r *Result) Bench(w io.Writer) error {
	for i, runs := range r.runs {
		for _, r := range runs {
			if err := benchHead(w, i, r.Env.Host, r.Report.Backend, r.Report.Provider); err != nil {
				return err
			}
			figures := map[string]float64{}
			for name, v := range r.Report.Measures {
				if v != nil {
					figures[name] = *v
				}
			}
			for name, v := range r.Report.Counts {
				if v != nil {
					figures[name] = float64(*v)
				}
			}
			if err := benchLine(w, "Run/scenario="+r.Report.Scenario+"/lock="+r.Report.Lock, r.Report.Judged.Grants,
				figures); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchHead writes the common keys of the benchmarks below it.
func benchHead(w io.Writer, i int, host map[string]string, backend, provider string) error {
	_, err := fmt.Fprintf(w, "goos: %s\ngoarch: %s\nkernel: %s\nbackend: %s\nprovider: %s\ngroup: %c\n",
		host["os"], host["arch"], host["kernel"], backend, provider, group(i))
	return err
}

// benchLine writes one benchmark.
func benchLine(w io.Writer, name string, iterations int64, figures map[string]float64) error {
	fmt.Fprintf(w, "Benchmark%s %d", strings.Join(strings.Fields(name), "_"), iterations)
	for _, f := range slices.Sorted(maps.Keys(figures)) {
		fmt.Fprintf(w, " %g %s", figures[f], f)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// Bench writes the samples of sweeps as benchmarks: a line for each usable one, with its cycles as iterations.
func (r *SweepResult) Bench(w io.Writer) error {
	for i, a := range r.analyses {
		for _, p := range a.Points {
			if err := benchHead(w, i, a.Host, p.Backend, a.Provider); err != nil {
				return err
			}
			for _, s := range p.Usable() {
				cycles := int64(s.Cycles * float64(a.Measured) / 1e9)
				if err := benchLine(w, benchName(p.Setting), max(1, cycles), figures(s)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// benchName names a point as Go's benchmarks do. Users come last: a trailing number after a dash would be read as the
// number of processors.
func benchName(s capacity.Setting) string {
	name := "Capacity"
	locks := fmt.Sprint(s.Locks)
	if s.Own {
		locks = "own"
	}
	span := func(ns int64) string {
		if ns == 0 {
			return ""
		}
		return time.Duration(ns).String()
	}
	rate := ""
	if s.Rate > 0 {
		rate = fmt.Sprintf("%g", s.Rate)
	}
	for _, part := range [][2]string{
		{"backend", s.Backend},
		{"lock", s.Lock},
		{"nodes", fmt.Sprint(s.Nodes)},
		{"locks", locks},
		{"hold", span(s.Hold)},
		{"ttl", span(s.TTL)},
		{"rtt", span(s.RTT)},
		{"retry", s.Retry},
		{"set", s.Set},
		{"rate", rate},
		{"users", fmt.Sprint(s.Users)},
	} {
		if part[1] != "" {
			name += "/" + part[0] + "=" + strings.ReplaceAll(part[1], "/", "_")
		}
	}
	return name
}
