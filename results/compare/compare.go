// Package compare compares figures: of runs of one scenario, and of sweeps of capacity, point by point. It takes one
// group or two.
package compare

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/mathx"
	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"

	"github.com/lockquake/lockquake/results"
)

// confidence is the level of the intervals.
const confidence = 0.95

// Allow says which differences do not prevent a comparison.
type Allow struct{ Machine, Settings bool }

// ParseAllow reads the names of differences.
func ParseAllow(names []string) (Allow, error) {
	for _, name := range names {
		if name != "machine" && name != "settings" {
			return Allow{}, fmt.Errorf("there is no %q; there are machine and settings", name)
		}
	}
	return Allow{Machine: slices.Contains(names, "machine"), Settings: slices.Contains(names, "settings")}, nil
}

// subject is what must be equal for figures to be comparable: of a run, or of a group of sweeps.
type subject struct {
	name              string // for messages
	machine, settings map[string]string
}

// machineOf selects the facts of a host that must be equal.
func machineOf(host map[string]string) map[string]string {
	out := map[string]string{}
	for _, name := range results.SameMachine {
		out[name] = host[name]
	}
	return out
}

// refuse returns an error with the reason if subjects cannot be compared with the first of them.
func refuse(all []subject, allow Allow) error {
	first := all[0]
	for _, s := range all[1:] {
		for _, c := range []struct {
			what    string
			allowed bool
			a, b    map[string]string
		}{
			{"machine", allow.Machine, first.machine, s.machine},
			{"settings", allow.Settings, first.settings, s.settings},
		} {
			for _, name := range slices.Sorted(maps.Keys(c.a)) {
				if c.allowed || c.a[name] == c.b[name] {
					continue
				}
				values := fmt.Sprintf(": %s and %s", c.a[name], c.b[name])
				if strings.Contains(values, "\n") {
					values = ""
				}
				return fmt.Errorf("%s and %s differ in their %s%s; --allow %s compares them anyway", first.name,
					s.name, name, values, c.what)
			}
		}
	}
	return nil
}

// Sides are the groups of a comparison, and their common facts.
type Sides struct {
	A       []string           `json:"a"` // directories
	B       []string           `json:"b,omitempty"`
	Differs map[string]Differs `json:"differs"` // versions that differ between the groups
	// Settings are those that differ between the groups, and were allowed to.
	Settings map[string]Differs `json:"settings,omitempty"`
	Answers  []Answer           `json:"answers"`
}

// Differs has the values of a version or a setting, in each group.
type Differs struct {
	A []string `json:"a"`
	B []string `json:"b"`
}

// differing returns the versions that differ between both groups; none with one group. Each group is a list of names
// with versions.
func differing(a, b []map[string]string) map[string]Differs {
	of := func(group []map[string]string) map[string][]string {
		out := map[string][]string{}
		for _, versions := range group {
			for name, v := range versions {
				out[name] = append(out[name], v)
			}
		}
		for name, values := range out {
			slices.Sort(values)
			out[name] = slices.Compact(values)
		}
		return out
	}
	out := map[string]Differs{}
	if len(b) == 0 {
		return out
	}
	va, vb := of(a), of(b)
	for _, names := range []map[string][]string{va, vb} {
		for name := range names {
			if !slices.Equal(va[name], vb[name]) {
				out[name] = Differs{va[name], vb[name]}
			}
		}
	}
	return out
}

// settingsOf returns the settings of some subjects.
func settingsOf(group []subject) (out []map[string]string) {
	for _, s := range group {
		out = append(out, s.settings)
	}
	return out
}

// Side is one group's values of a figure.
type Side struct {
	Values []float64 `json:"values"` // of the runs that have it
	// Median is of the values. Low and High bound it with a confidence of at least 95 %, and are nil with too few
	// values.
	Median float64  `json:"median"`
	Low    *float64 `json:"low"`
	High   *float64 `json:"high"`
	// Above is the number of runs in which it is above zero.
	Above int `json:"above_zero"`
}

// Figure is a count or a measure.
type Figure struct {
	results.Quantity
	Count bool  `json:"count"`
	A     Side  `json:"a"`
	B     *Side `json:"b,omitempty"` // nil with one group
	// Change is the relative change of the median from A to B; nil if A's is 0.
	Change *float64 `json:"change,omitempty"`
	// P is the probability of such a difference by chance; nil if nothing was tested. A measure is tested by Mann and
	// Whitney's U test. A count is tested by Fisher's exact test of how many runs have it above zero, because
	// violations within one run come in bunches. A difference is significant if P is below Alpha.
	P     *float64 `json:"p,omitempty"`
	Alpha float64  `json:"alpha,omitempty"`
	// TooFew says how many runs of each group a test needs.
	TooFew string `json:"too_few,omitempty"`
}

// Alpha is the P below which a difference is significant, for a single tested figure.
const Alpha = 0.05

// compared tests the values of one quantity in one group, or in two; ok reports whether any run has it.
func compared(q results.Quantity, count bool, alpha float64, groups ...[]float64) (f Figure, ok bool) {
	f = Figure{Quantity: q, Count: count, A: side(groups[0])}
	if len(groups) == 1 {
		return f, len(groups[0]) > 0
	}
	a, b := groups[0], groups[1]
	s := side(b)
	f.B = &s
	if len(a) == 0 || len(b) == 0 {
		return f, len(a)+len(b) > 0
	}
	if f.A.Median != 0 {
		change := s.Median/f.A.Median - 1
		f.Change = &change
	}
	f.Alpha = alpha
	if f.Count {
		p := fisher(f.A.Above, len(a), s.Above, len(b))
		f.P = &p
		return f, true
	}
	found := benchmath.AssumeNothing.Compare(sample(a, alpha), sample(b, alpha))
	for _, w := range found.Warnings {
		if !errors.Is(w, stats.ErrSamplesEqual) {
			f.TooFew = w.Error()
		}
	}
	// The library only handles groups of one size. The lowest p is that of groups which do not overlap: one order of
	// all values in two.
	if least := 2 / mathx.Choose(len(a)+len(b), len(a)); f.TooFew == "" && least >= alpha {
		f.TooFew = fmt.Sprintf("with %d and %d samples p is at least %.2g, but a difference needs less than %.2g",
			len(a), len(b), least, alpha)
	}
	f.P = &found.P
	return f, true
}

// differs reports whether the groups differ significantly.
func (f Figure) differs() bool { return f.P != nil && *f.P < f.Alpha }

func sample(values []float64, alpha float64) *benchmath.Sample {
	t := benchmath.DefaultThresholds
	t.CompareAlpha = alpha
	return benchmath.NewSample(slices.Clone(values), &t)
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
	sum := benchmath.AssumeNothing.Summary(sample(values, Alpha), confidence)
	s.Median = sum.Center
	if !math.IsInf(sum.Lo, 0) && !math.IsInf(sum.Hi, 0) {
		s.Low, s.High = &sum.Lo, &sum.Hi
	}
	return s
}

// fisher returns the two-sided P of Fisher's exact test: k of n runs in one group, l of m in the other. It adds up
// the tables with the same totals that are no more likely than this one.
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
