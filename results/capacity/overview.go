package capacity

import (
	"cmp"
	"slices"
	"strings"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/page"
)

// numeric is a number in which curves may differ. Removed from two settings, it leaves equal settings if they differ
// in nothing else.
type numeric struct {
	name, unit string
	take       func(*Setting) float64
}

var numerics = []numeric{
	{"locks", "", func(s *Setting) float64 { return take(&s.Locks, 1) }},
	{"hold", ", ms", func(s *Setting) float64 { return take(&s.Hold, 1e6) }},
	{"TTL", ", s", func(s *Setting) float64 { return take(&s.TTL, 1e9) }},
	{"members", "", func(s *Setting) float64 { return take(&s.Nodes, 1) }},
	{"RTT", ", ms", func(s *Setting) float64 { return take(&s.RTT, 1e6) }},
}

func take[T int | int64](n *T, unit float64) float64 {
	defer func() { *n = 0 }()
	return float64(*n) / unit
}

// overview returns a header row and a row for each curve; a single curve needs none.
func (a Analysis) overview() [][]string {
	if len(a.Curves) < 2 {
		return nil
	}
	rows := [][]string{{"curve", "best cycles/s", "it bends at", "limit"}}
	if a.Objective != nil {
		rows[0] = append(rows[0], "rate kept") // the header has the objective
	}
	written := slices.ContainsFunc(a.Curves, func(c Curve) bool { return c.mostLasting() != nil })
	if written {
		rows[0] = append(rows[0], "lasting writes/s", "lost")
	}
	for _, c := range a.Curves {
		best, limit, kept := "none", "-", "none confirmed"
		if p := c.Peak(); p != nil {
			best, limit = figure.Number(p.Cycles.Mid), strings.TrimPrefix(string(p.Limit.Cause), "the ")
			if c.AtLeast(*p) {
				best = "at least " + best
			}
		}
		if c.Kept.Confirmed {
			kept = figure.Number(round(c.Kept.Rate)) + "/s"
		}
		knee, _ := c.Bends()
		row := []string{differing(c, a.Curves), best, knee, limit}
		if a.Objective != nil {
			row = append(row, kept)
		}
		if r := c.mostLasting(); r != nil {
			row = append(row, figure.Number(r.lasting()), r.LostText())
		} else if written {
			row = append(row, "-", "-")
		}
		rows = append(rows, row)
	}
	return rows
}

// differing returns the words of a curve that not all curves have. A number that is 0 has no word, and is shown if
// others have it.
func differing(c Curve, curves []Curve) string {
	words := slices.DeleteFunc(c.words(), func(w string) bool {
		return !slices.ContainsFunc(curves, func(d Curve) bool { return !slices.Contains(d.words(), w) })
	})
	for _, n := range numerics {
		if s := c.Setting; n.take(&s) == 0 && slices.ContainsFunc(curves,
			func(d Curve) bool { return n.take(&d.Setting) > 0 }) {
			words = append(words, n.name+" 0")
		}
	}
	return strings.Join(words, ", ")
}

// line joins curves that differ in one number only.
type line struct {
	Curve               // the common settings
	all, exact, atLeast plotter.XYs
}

// lines returns the lines of the best throughput over a number, for groups of two or more curves that differ in
// nothing else.
func (of numeric) lines(curves []Curve) (out []line) {
	for _, c := range curves {
		peak, at := c.Peak(), plotter.XY{X: of.take(&c.Setting)}
		i := slices.IndexFunc(out, func(l line) bool { return l.Setting == c.Setting })
		if i < 0 {
			i, out = len(out), append(out, line{Curve: c})
		}
		if peak != nil && peak.Cycles.Mid > 0 {
			at.Y = peak.Cycles.Mid
			out[i].all = append(out[i].all, at)
			dots := &out[i].exact
			if c.AtLeast(*peak) {
				dots = &out[i].atLeast
			}
			*dots = append(*dots, at)
		}
	}
	return slices.DeleteFunc(out, func(l line) bool { return len(l.all) < 2 })
}

// best draws the best throughput of curves over the number in which they differ.
func (of numeric) best(lines []line) (page.Chart, error) {
	p := page.NewPlot(of.name+of.unit, "best cycles/s")
	var x, y extent
	var curves []Curve
	for i, l := range lines {
		slices.SortFunc(l.all, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		left, right, low, high := plotter.XYRange(l.all)
		x.add(left, right)
		y.add(low, high)
		curves = append(curves, l.Curve)
		if err := add(p, page.Style(i), shape{line: l.all}, shape{dots: l.exact, glyph: draw.CircleGlyph{}},
			shape{dots: l.atLeast, glyph: draw.TriangleGlyph{}}); err != nil {
			return page.Chart{}, err
		}
	}
	if p.X.Max *= 1.05; p.X.Min > 0 { // a 0 has no logarithm
		x.axis(&p.X)
	}
	y.axis(&p.Y)
	svg, err := page.Inline(p, "Best cycles per second by "+of.name+"; the overview has the figures.")
	return page.Chart{
		Title:   "Best throughput over " + of.name,
		Caption: "A line joins curves that differ only in this axis. A triangle is a lower bound.",
		Legend:  legend(curves), SVG: svg,
	}, err
}
