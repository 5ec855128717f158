package compare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Run is one run, judged anew: figures of two versions of the judge cannot be compared.
type Run struct {
	Dir    string
	Report results.Report
	Env    results.Env
	text   string // of its scenario, without the seed
}

// seedKey matches the key that distinguishes runs of one scenario.
var seedKey = regexp.MustCompile(`\bseed: *\d+`)

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
	text, err := history.ReadOwn(filepath.Join(dir, results.FileScenario), history.MostText)
	if err != nil {
		return Run{}, err
	}
	return Run{Dir: dir, Report: rep, Env: env, text: seedKey.ReplaceAllString(string(text), "seed: 0")}, nil
}

func (r Run) subject() subject {
	return subject{r.Dir, machineOf(r.Env.Host), map[string]string{
		"provider": r.Report.Provider, "backend": r.Report.Backend, "lock": r.Report.Lock,
		"scenario": r.Report.Scenario, "text of the scenario": r.text,
	}}
}

// versions returns the versions of lockquake, of servers and of libraries.
func (r Run) versions() map[string]string {
	out := map[string]string{"lockquake": r.Env.Version}
	maps.Copy(out, r.Report.Versions)
	return out
}

// Result is a comparison of runs.
type Result struct {
	Sides
	Ran      [2]string         `json:"ran"` // what each group ran, in words
	Figures  []Figure          `json:"figures"`
	Verdicts map[string][2]int `json:"verdicts"` // how many runs of each group have it
	runs     [2][]Run
}

// Of compares two groups of runs; b may be empty. The figures are those that the checkers judged in some run, with
// those that reports show first before the others.
func Of(a, b []Run, checkers results.Checkers, allow Allow) (*Result, error) {
	if len(a) == 0 {
		return nil, errors.New("there is no run to compare")
	}
	var all []subject
	for _, r := range slices.Concat(a, b) {
		all = append(all, r.subject())
	}
	if err := refuse(all, allow); err != nil {
		return nil, err
	}
	out := &Result{Verdicts: map[string][2]int{}, runs: [2][]Run{a, b}}
	var versions [2][]map[string]string
	var dirs [2][]string
	for i, runs := range out.runs {
		var ran []string
		for _, r := range runs {
			dirs[i] = append(dirs[i], r.Dir)
			versions[i] = append(versions[i], r.versions())
			ran = append(ran, fmt.Sprintf("%s (%s, lock %s, provider %s)", r.Report.Scenario, r.Report.Backend,
				r.Report.Lock, r.Report.Provider))
			n := out.Verdicts[string(r.Report.Verdict)]
			n[i]++
			out.Verdicts[string(r.Report.Verdict)] = n
		}
		slices.Sort(ran)
		out.Ran[i] = strings.Join(slices.Compact(ran), " and ")
	}
	out.Sides = Sides{
		A: dirs[0], B: dirs[1], Differs: differing(versions[0], versions[1]),
		Settings: differing(settingsOf(all[:len(a)]), settingsOf(all[len(a):])), Answers: []Answer{},
	}
	for _, k := range checkers {
		for i, q := range slices.Concat(k.Counts, k.Measures) {
			groups := [][]float64{values(q.Name, a), values(q.Name, b)}
			if len(b) == 0 {
				groups = groups[:1]
			}
			if f, ok := compared(q, i < len(k.Counts), Alpha, groups...); ok {
				out.Figures = append(out.Figures, f)
			}
		}
	}
	slices.SortStableFunc(out.Figures, func(x, y Figure) int {
		return cmp.Compare(cmp.Or(x.First, math.MaxInt),
			cmp.Or(y.First, math.MaxInt))
	})
	return out, nil
}

// values returns the values of the runs that judged a count or a measure.
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
