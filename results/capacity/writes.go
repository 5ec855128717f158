package capacity

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/page"
)

// If the load writes to a resource, the lock exists for these writes. A sweep of them compares locks with each other,
// with a resource that refuses writes by itself, and with the error without a lock.

// Writes reports whether a resource was written in any of the runs.
func (t table) Writes() bool {
	return slices.ContainsFunc(t.Readings, func(r Reading) bool { return r.Writes.N > 0 })
}

// LostText formats the part of the acknowledged writes that is lost; "-" if that was not judged.
func (r Reading) LostText() string {
	if r.Lost.N == 0 {
		return "-"
	}
	return figure.Number(100*r.Lost.Mid) + " %"
}

// lasting returns the writes a second that survive in the final value. Example: of 920 writes a second 83 % are lost:
// 156 last.
func (r Reading) lasting() float64 { return r.Writes.Mid * (1 - r.Lost.Mid) }

// mostLasting returns the reading of the closed loop with the most lasting writes; nil: nothing was written.
func (c Curve) mostLasting() *Reading {
	var best *Reading
	for i, r := range c.Closed {
		if r.Writes.N > 0 && len(r.Wrong) == 0 && (best == nil || r.lasting() > best.lasting()) {
			best = &c.Closed[i]
		}
	}
	return best
}

// lasts says how many writes last; "": nothing was written.
func (c Curve) lasts() string {
	r := c.mostLasting()
	switch {
	case r == nil:
		return ""
	case r.Lost.N == 0:
		return fmt.Sprintf("%s writes/s were applied (%s); the loss is unknown",
			figure.Number(r.Writes.Mid), figure.Of(r.Users, "user"))
	}
	return fmt.Sprintf("%s writes/s last (%s; %s of the acknowledged ones are lost)", figure.Number(r.lasting()),
		figure.Of(r.Users, "user"), r.LostText())
}

// lastingWrites draws the lasting writes over users.
func lastingWrites(curves []Curve, _ *Objective) (page.Chart, error) {
	p := page.NewPlot("users", "lasting writes/s")
	var x, y extent
	for i, c := range curves {
		var dots plotter.XYs
		for _, r := range c.Closed {
			if at := (plotter.XY{X: float64(r.Users), Y: r.lasting()}); at.Y > 0 {
				x.add(at.X)
				y.add(at.Y)
				dots = append(dots, at)
			}
		}
		if err := add(p, page.Style(i), shape{line: dots}, shape{dots: dots, glyph: draw.CircleGlyph{}}); err != nil {
			return page.Chart{}, err
		}
	}
	if y.high == 0 {
		return page.Chart{}, nil
	}
	x.axis(&p.X)
	y.axis(&p.Y)
	svg, err := page.Inline(p, "Lasting writes per second by the number of users, on logarithmic scales; the tables have the figures.")
	return page.Chart{
		Title:   "Lasting writes over users",
		Caption: "Medians of the applied writes, minus the share that is missing from the final value.",
		Legend:  legend(curves), SVG: svg,
	}, err
}
