package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
)

// pairs has the hunts for one target, of both arms.
type pairs struct {
	target         Target
	guided, random []Hunt
}

// took returns the time to the first violation. Without one it returns the budget, and censored.
func (h Hunt) took() (ms float64, censored bool) {
	if h.Found == nil {
		return float64(h.Budget), true
	}
	return float64(max(*h.Found, 1)), false
}

// ratios returns how many times longer the random arm took, for each seed. A pair in which neither arm found anything
// is left out.
func (p pairs) ratios() (out []float64) {
	for _, g := range p.guided {
		for _, r := range p.random {
			guided, none := g.took()
			random, neither := r.took()
			if g.Seed == r.Seed && !(none && neither) {
				out = append(out, random/guided)
			}
		}
	}
	slices.Sort(out)
	return out
}

// paired returns the targets with an expected violation, and their hunts.
func paired(chosen []Target, rec *record) (out []pairs) {
	for _, t := range chosen {
		if t.Nothing {
			continue
		}
		p := pairs{target: t}
		for _, h := range rec.of(t) {
			if h.Random {
				p.random = append(p.random, h)
			} else {
				p.guided = append(p.guided, h)
			}
		}
		out = append(out, p)
	}
	return out
}

// samples is the number of bootstrap samples.
const samples = 10_000

// speedup returns the geometric mean over targets of the median ratio, and its 95 % bootstrap interval: it resamples
// targets, and pairs within them. All are 0 if no target has a pair.
func speedup(all []pairs) (mean, low, high float64, n int) {
	var ratios [][]float64
	for _, p := range all {
		if r := p.ratios(); len(r) > 0 {
			ratios = append(ratios, r)
		}
	}
	if len(ratios) == 0 {
		return 0, 0, 0, 0
	}
	random := rand.New(rand.NewPCG(1, 1)) // the same figures for the same record
	drawn := make([]float64, samples)
	for i := range drawn {
		medians := make([]float64, len(ratios))
		for j := range medians {
			of := ratios[random.IntN(len(ratios))]
			again := make([]float64, len(of))
			for k := range again {
				again[k] = of[random.IntN(len(of))]
			}
			medians[j] = median(again)
		}
		drawn[i] = stat.GeometricMean(medians, nil)
	}
	slices.Sort(drawn)
	medians := make([]float64, len(ratios))
	for j, of := range ratios {
		medians[j] = median(of)
	}
	return stat.GeometricMean(medians, nil), stat.Quantile(0.025, stat.Empirical, drawn, nil),
		stat.Quantile(0.975, stat.Empirical, drawn, nil), len(ratios)
}

// median returns the median of ratios: of an even number of values, the geometric mean of the inner two.
func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	n := len(x)
	return math.Sqrt(x[(n-1)/2] * x[n/2])
}

// report prints the tables of the hunts so far, as Markdown.
func report(w io.Writer, chosen []Target, rec *record) error {
	all := paired(chosen, rec)
	fmt.Fprint(w, "| target | goal | found by guided | after (s, median) | found by random | after (s, median) "+
		"| ratio | script | reproduces | good version |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range all {
		if len(p.guided)+len(p.random) == 0 {
			continue
		}
		ratio := "-"
		if r := p.ratios(); len(r) > 0 {
			ratio = fmt.Sprintf("%.2f", median(r))
		}
		fmt.Fprintf(w, "| %s | `%s` | %s | %s | %s | %s | %s | %s |\n", p.target.Name, p.target.Goal, found(p.guided),
			seconds(p.guided), found(p.random), seconds(p.random), ratio, handed(p.guided))
	}
	if mean, low, high, n := speedup(all); n > 0 {
		fmt.Fprintf(w, "\nGeometric mean of the ratios over %d targets: %.2f (95 %%: %.2f to %.2f).\n", n, mean, low,
			high)
	}
	fmt.Fprint(w, "\n| nothing is expected | runs | grants judged | behaviours | found |\n|---|---|---|---|---|\n")
	for _, t := range chosen {
		for _, h := range rec.of(t) {
			if t.Nothing {
				fmt.Fprintf(w, "| %s | %d | %d | %d | %s |\n", t.Name, h.Runs, h.Grants, h.Behaviours, found([]Hunt{h}))
			}
		}
	}
	made := slices.SortedFunc(slices.Values(rec.hunts), func(a, b Hunt) int { return cmp.Compare(a.Commit, b.Commit) })
	made = slices.CompactFunc(made, func(a, b Hunt) bool { return a.Commit == b.Commit })
	for _, h := range made {
		fmt.Fprintf(w, "\nMade by commit %s from %s.\n", h.Commit, h.Date.Format(time.DateOnly))
	}
	return nil
}

// found returns in how many of the hunts the goal was reached.
func found(of []Hunt) string {
	n := 0
	for _, h := range of {
		if h.Found != nil {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(of))
}

// seconds returns the median time to the first violation, with "> " in front if it is censored.
func seconds(of []Hunt) string {
	var all []float64
	for _, h := range of {
		ms, _ := h.took()
		all = append(all, ms/1000)
	}
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	at := all[(len(all)-1)/2]
	for _, h := range of {
		if ms, censored := h.took(); censored && ms/1000 <= at {
			return fmt.Sprintf("> %.0f", at)
		}
	}
	return fmt.Sprintf("%.1f", at)
}

// handed returns the cells about the script that was handed out.
func handed(of []Hunt) string {
	for _, h := range of {
		if h.Size == nil {
			continue
		}
		good := "-"
		if h.Good != nil {
			good = fmt.Sprintf("%d of %d", *h.Good, goodRuns)
		}
		return fmt.Sprintf("%d steps, %d faults | %d of %d | %s", h.Size.Steps, h.Size.Faults, h.Reached, h.Tries, good)
	}
	return "- | - | -"
}
