// Package compare sets the figures of runs of one scenario side by side: of one group of runs, or of two.
package compare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"

	"github.com/lockquake/lockquake/results"
)

// confidence is that of the intervals.
const confidence = 0.95

// Run is one run, judged now: figures of two versions of the judge cannot be compared.
type Run struct {
	Dir    string
	Report results.Report
	Env    results.Env
	text   string // of its scenario, the seed aside
}

// seed is the key that tells runs of one scenario apart.
var seed = regexp.MustCompile(`\bseed: *\d+`)

// Read judges a run from its directory.
func Read(dir string, checkers results.Checkers) (Run, error) {
	rep, err := results.Judge(dir, checkers)
	if err != nil {
		return Run{}, err
	}
	env, err := results.ReadEnv(dir)
	if err != nil {
		return Run{}, err
	}
	text, err := os.ReadFile(filepath.Join(dir, results.FileScenario))
	if err != nil {
		return Run{}, err
	}
	return Run{Dir: dir, Report: rep, Env: env, text: seed.ReplaceAllString(string(text), "seed: 0")}, nil
}

// Allow says which differences between runs are no reason to refuse the comparison.
type Allow struct{ Machine, Settings bool }

// facts are what must be equal for figures to be comparable: the machine's, and the settings.
func (r Run) facts() (machine, settings map[string]string) {
	machine = map[string]string{}
	for _, name := range []string{"os", "arch", "kernel", "cores", "memory"} {
		machine[name] = r.Env.Host[name]
	}
	return machine, map[string]string{
		"provider": r.Report.Provider, "backend": r.Report.Backend, "lock": r.Report.Lock, "scenario": r.Report.Scenario, "text of the scenario": r.text,
	}
}

// refuse tells why runs cannot be compared.
func refuse(runs []Run, allow Allow) error {
	machine, settings := runs[0].facts()
	for _, r := range runs[1:] {
		m, s := r.facts()
		for _, c := range []struct {
			what    string
			allowed bool
			a, b    map[string]string
		}{{"machine", allow.Machine, machine, m}, {"settings", allow.Settings, settings, s}} {
			for _, name := range slices.Sorted(maps.Keys(c.a)) {
				if c.allowed || c.a[name] == c.b[name] {
					continue
				}
				values := fmt.Sprintf(": %s and %s", c.a[name], c.b[name])
				if strings.Contains(values, "\n") {
					values = ""
				}
				return fmt.Errorf("%s and %s differ in their %s%s; --allow %s compares them all the same", runs[0].Dir, r.Dir, name, values, c.what)
			}
		}
	}
	return nil
}

// Side is what one group of runs has of a figure.
type Side struct {
	Values []float64 `json:"values"` // of the runs that judged it
	// Median is of the values; Low and High bound it with a confidence of at least 95 %, and are nil where there are too few values.
	Median float64  `json:"median"`
	Low    *float64 `json:"low"`
	High   *float64 `json:"high"`
	// Above is in how many runs it is above zero.
	Above int `json:"above_zero"`
}

// Figure is a count or a measure.
type Figure struct {
	results.Quantity
	Count bool  `json:"count"`
	A     Side  `json:"a"`
	B     *Side `json:"b,omitempty"` // nil where there is one group
	// Change is that of the median from A to B, in parts of A's; nil where that is 0.
	Change *float64 `json:"change,omitempty"`
	// P is how likely such a difference is by chance, by Mann and Whitney's U test for a measure, by Fisher's exact test of how many
	// runs have it above zero for a count: violations within one run come in bunches. Nil where nothing was tested.
	P *float64 `json:"p,omitempty"`
	// TooFew says how many runs of each group a test would take.
	TooFew string `json:"too_few,omitempty"`
}

// Alpha is the P below which a difference counts as one.
const Alpha = 0.05

// Result is a comparison.
type Result struct {
	A        []string           `json:"a"` // directories
	B        []string           `json:"b,omitempty"`
	Ran      [2]string          `json:"ran"`     // what each group ran, in words
	Differs  map[string]Differs `json:"differs"` // versions that are not the same in both groups
	Figures  []Figure           `json:"figures"`
	Verdicts map[string][2]int  `json:"verdicts"` // how many runs of each group have it
}

// Differs are the values of a version, in each group.
type Differs struct {
	A []string `json:"a"`
	B []string `json:"b"`
}

// Of compares two groups of runs; b may be empty. The figures are those of the checkers that some run judged, those that reports show first
// before the others.
func Of(a, b []Run, checkers results.Checkers, allow Allow) (Result, error) {
	if len(a) == 0 {
		return Result{}, errors.New("there is no run to compare")
	}
	if err := refuse(slices.Concat(a, b), allow); err != nil {
		return Result{}, err
	}
	out := Result{A: dirs(a), B: dirs(b), Differs: map[string]Differs{}, Verdicts: map[string][2]int{}}
	if len(b) > 0 {
		out.Differs = differing(a, b)
	}
	for i, runs := range [][]Run{a, b} {
		var ran []string
		for _, r := range runs {
			ran = append(ran, fmt.Sprintf("%s (%s, lock %s, provider %s)", r.Report.Scenario, r.Report.Backend, r.Report.Lock, r.Report.Provider))
			n := out.Verdicts[string(r.Report.Verdict)]
			n[i]++
			out.Verdicts[string(r.Report.Verdict)] = n
		}
		slices.Sort(ran)
		out.Ran[i] = strings.Join(slices.Compact(ran), " and ")
	}
	for _, k := range checkers {
		for i, q := range slices.Concat(k.Counts, k.Measures) {
			if f, ok := figure(q, i < len(k.Counts), a, b); ok {
				out.Figures = append(out.Figures, f)
			}
		}
	}
	slices.SortStableFunc(out.Figures, func(x, y Figure) int { return cmp.Compare(cmp.Or(x.First, math.MaxInt), cmp.Or(y.First, math.MaxInt)) })
	return out, nil
}

func dirs(runs []Run) []string {
	var out []string
	for _, r := range runs {
		out = append(out, r.Dir)
	}
	return out
}

// differing are the versions of lockquake, of servers and of libraries that are not the same in both groups.
func differing(a, b []Run) map[string]Differs {
	of := func(runs []Run) map[string][]string {
		out := map[string][]string{}
		for _, r := range runs {
			add := func(name, value string) {
				if !slices.Contains(out[name], value) {
					out[name] = append(out[name], value)
				}
			}
			add("lockquake", r.Env.Version)
			for name, v := range r.Report.Versions {
				add(name, v)
			}
		}
		for _, values := range out {
			slices.Sort(values)
		}
		return out
	}
	va, vb, out := of(a), of(b), map[string]Differs{}
	for _, names := range []map[string][]string{va, vb} {
		for name := range names {
			if !slices.Equal(va[name], vb[name]) {
				out[name] = Differs{va[name], vb[name]}
			}
		}
	}
	return out
}

// figure compares one quantity; ok tells whether any run judged it.
func figure(q results.Quantity, count bool, a, b []Run) (f Figure, ok bool) {
	f = Figure{Quantity: q, Count: count}
	va, vb := values(q.Name, a), values(q.Name, b)
	if len(va)+len(vb) == 0 {
		return f, false
	}
	f.A = side(va)
	if len(b) == 0 {
		return f, true
	}
	s := side(vb)
	f.B = &s
	if len(va) == 0 || len(vb) == 0 {
		return f, true
	}
	if f.A.Median != 0 {
		change := s.Median/f.A.Median - 1
		f.Change = &change
	}
	if f.Count {
		p := fisher(f.A.Above, len(va), s.Above, len(vb))
		f.P = &p
		return f, true
	}
	test := benchmath.AssumeNothing.Compare(sample(va), sample(vb))
	for _, w := range test.Warnings {
		if !errors.Is(w, stats.ErrSamplesEqual) {
			f.TooFew = w.Error()
		}
	}
	f.P = &test.P
	return f, true
}

// values are those of the runs that judged a count or a measure.
func values(name string, runs []Run) []float64 {
	var out []float64
	for _, r := range runs {
		if v := r.Report.Counts[name]; v != nil {
			out = append(out, float64(*v))
		} else if v := r.Report.Measures[name]; v != nil {
			out = append(out, *v)
		}
	}
	return out
}

func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

func side(values []float64) Side {
	s := Side{Values: values}
	for _, v := range values {
		if v > 0 {
			s.Above++
		}
	}
	if len(values) == 0 {
		return s
	}
	sum := benchmath.AssumeNothing.Summary(sample(values), confidence)
	s.Median = sum.Center
	if !math.IsInf(sum.Lo, 0) && !math.IsInf(sum.Hi, 0) {
		s.Low, s.High = &sum.Lo, &sum.Hi
	}
	return s
}

// fisher is the two-sided P of Fisher's exact test: k of n runs in one group, l of m in the other. It adds up the tables that are no more
// likely than this one, given how many runs have it in all.
func fisher(k, n, l, m int) float64 {
	d := stats.HypergeometicDist{N: n + m, K: k + l, Draws: n}
	seen, p := d.PMF(float64(k)), 0.0
	for x := max(0, k+l-m); x <= min(n, k+l); x++ {
		if one := d.PMF(float64(x)); one <= seen*(1+1e-9) { // sums of logarithms are not exact
			p += one
		}
	}
	return min(p, 1)
}
