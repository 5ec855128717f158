package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
)

// Demand is an entry of --fail-on: a figure that must not become worse.
type Demand struct {
	Name string
	By   float64 // permitted relative change of the median for the worse; not for counts
	text string
}

// short are short names of figures.
var short = map[string]string{
	"p50": "acquire_p50_ms", "p90": "acquire_p90_ms", "p99": "acquire_p99_ms", "p999": "acquire_p999_ms",
	"p99.9": "acquire_p999_ms",
	"p9999": "acquire_p9999_ms", "p99.99": "acquire_p9999_ms", "max": "acquire_max_ms",
	"throughput": "throughput_per_s",
}

// ParseDemands reads entries such as "p99=10%", "throughput=5%" and "double_grants", separated by commas. list says
// in words where to find the names of the counts and measures.
func ParseDemands(text string, known results.Checkers, list string) ([]Demand, error) {
	var out []Demand
	for entry := range strings.SplitSeq(text, ",") {
		entry = strings.TrimSpace(entry)
		name, by, bounded := strings.Cut(entry, "=")
		d := Demand{Name: name, text: entry}
		if long, ok := short[name]; ok {
			d.Name = long
		}
		count := slices.ContainsFunc(known, func(k results.CheckerKind) bool {
			return slices.ContainsFunc(k.Counts, func(q results.Quantity) bool { return q.Name == d.Name })
		})
		switch {
		case !slices.Contains(known.Names(), d.Name):
			return nil, fmt.Errorf("there is no count or measure %q; %s; p50, p99, max and throughput are short names", name, list)
		case count && bounded:
			return nil, fmt.Errorf("%s is a count, which must not grow: it takes no %q", name, "="+by)
		case !count && !bounded:
			return nil, fmt.Errorf("%s needs a bound, such as %s=10%%", name, name)
		case bounded:
			percent, ok := strings.CutSuffix(by, "%")
			n, err := strconv.ParseFloat(percent, 64)
			if !ok || err != nil || n < 0 || n > 1e6 {
				return nil, fmt.Errorf("%s: the bound is %q; it must be a percentage >= 0, such as 10%%", name, by)
			}
			d.By = n / 100
		}
		out = append(out, d)
	}
	return out, nil
}

// Answer is the result of a demand.
type Answer struct {
	Demand  string          `json:"demand"`
	Verdict results.Verdict `json:"verdict"`
	Reason  string          `json:"reason"`
}

// Hold tests demands on a comparison of two groups of runs. An answer is unknown if the figure was not judged, or
// there are too few runs.
func (r *Result) Hold(demands []Demand) []Answer {
	for _, d := range demands {
		r.Answers = append(r.Answers, held(r.Figures, d))
	}
	return r.Answers
}

// held finds the figure of a demand.
func held(figures []Figure, d Demand) Answer {
	i := slices.IndexFunc(figures, func(f Figure) bool { return f.Name == d.Name })
	switch {
	case i < 0 || len(figures[i].A.Values) == 0 || figures[i].B == nil || len(figures[i].B.Values) == 0:
		return Answer{d.text, results.Unknown, d.Name + " was not judged in both groups"}
	case figures[i].Count:
		return figures[i].more(d)
	}
	return figures[i].worse(d)
}

// more fails if the first group has none and the second has some, or if significantly more runs have it.
func (f Figure) more(d Demand) Answer {
	reason := fmt.Sprintf("%d of %d runs have %s, before %d of %d (p=%.2g)", f.B.Above, len(f.B.Values), f.Name,
		f.A.Above, len(f.A.Values), *f.P)
	if f.A.Above == 0 && f.B.Above > 0 || f.differs() && f.B.Above*len(f.A.Values) > f.A.Above*len(f.B.Values) {
		return Answer{d.text, results.Fail, reason}
	}
	return Answer{d.text, results.Pass, reason}
}

// worse fails if the median is worse by more than the bound, and significantly so.
func (f Figure) worse(d Demand) Answer {
	bad := f.B.Median - f.A.Median
	if f.MoreIsBetter {
		bad = -bad
	}
	reason := fmt.Sprintf("the median of %s is %s, before %s (p=%.2g)", f.Name, figure.Number(f.B.Median),
		figure.Number(f.A.Median), *f.P)
	switch {
	case f.TooFew != "":
		return Answer{d.text, results.Unknown, reason + ": " + f.TooFew}
	case bad > d.By*f.A.Median && f.differs():
		return Answer{d.text, results.Fail, reason}
	}
	return Answer{d.text, results.Pass, reason}
}
