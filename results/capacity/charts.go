package capacity

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/page"
)

// charts draws all curves on the same axes, with as many per chart as can be distinguished.
func charts(a Analysis) ([]page.Chart, error) {
	var out []page.Chart
	for curves := range slices.Chunk(a.Curves, page.Styles) {
		for _, draw := range []func([]Curve, *Objective) (page.Chart, error){throughput, lastingWrites, latencies} {
			c, err := draw(curves, a.Objective)
			if err != nil {
				return nil, err
			}
			if c.SVG != "" {
				out = append(out, c)
			}
		}
	}
	for _, n := range numerics {
		for lines := range slices.Chunk(n.lines(a.Curves), page.Styles) {
			c, err := n.best(lines)
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// legend names the curves of a chart.
func legend(curves []Curve) []page.Entry {
	var out []page.Entry
	for i, c := range curves {
		out = append(out, page.Entry{Class: "key s" + strconv.Itoa(i), Name: c.Name()})
	}
	return out
}

// extent is the range of an axis.
type extent struct{ low, high float64 }

func (e *extent) add(values ...float64) {
	for _, v := range values {
		if v > 0 && !math.IsInf(v, 1) {
			if e.high == 0 {
				e.low, e.high = v, v
			}
			e.low, e.high = min(e.low, v), max(e.high, v)
		}
	}
}

// axis sets a logarithmic axis with room at both ends.
func (e extent) axis(a *plot.Axis) {
	a.Scale, a.Tick.Marker = plot.LogScale{}, page.LogTicks
	a.Min, a.Max = e.low/1.2, e.high*1.2
}

// throughput draws throughput over users: the measurements with their intervals, the law that explains them, and the
// ranges of its knee and its peak. An objective's rate is a horizontal line.
func throughput(curves []Curve, o *Objective) (page.Chart, error) {
	p := page.NewPlot("users", "cycles/s")
	var x, y extent
	for i, c := range curves {
		style := page.Style(i)
		var dots, low, high, out plotter.XYs
		for _, r := range c.Closed {
			at := plotter.XY{X: float64(r.Users), Y: r.Cycles.Mid}
			if !(at.Y > 0) {
				continue
			}
			x.add(at.X)
			y.add(at.Y, r.Cycles.Low, r.Cycles.High)
			if len(r.Marks) > 0 {
				out = append(out, at)
				continue
			}
			dots = append(dots, at)
			low, high = append(low, plotter.XY{X: at.X, Y: max(r.Cycles.Low, at.Y/1e3)}),
				append(high, plotter.XY{X: at.X, Y: r.Cycles.High})
		}
		slices.Reverse(high)
		if err := add(p, style, shape{area: slices.Concat(low, high)}, shape{line: dots},
			shape{dots: dots, glyph: draw.CircleGlyph{}}, shape{dots: out, glyph: draw.CrossGlyph{}}); err != nil {
			return page.Chart{}, err
		}
		if c.Fit == nil {
			continue
		}
		thin, wide := style, style
		thin.Width, thin.Dashes = 1, []vg.Length{1, 3}
		wide.Width, wide.Dashes, wide.Color = 7, nil, faint{style.Color, 90}
		if err := add(p, thin, shape{line: c.Fit.between(float64(c.Fit.From), float64(c.Fit.To))}); err != nil {
			return page.Chart{}, err
		}
		for _, r := range []Range{c.Fit.KneeRange, c.Fit.PeakRange} {
			if c.Fit.users(r) == "" {
				continue
			}
			if err := add(p, wide, shape{line: c.Fit.between(r.Low*0.97,
				min(r.High*1.03, float64(c.Fit.To)))}); err != nil {
				return page.Chart{}, err
			}
		}
	}
	if y.high == 0 {
		return page.Chart{}, nil
	}
	for i, c := range curves {
		if c.Kept.Confirmed {
			y.add(c.Kept.Rate)
			style := page.Style(i)
			style.Width, style.Color = 0.9, faint{style.Color, 170}
			if err := add(p, style, shape{line: plotter.XYs{
				{X: x.low / 1.2, Y: c.Kept.Rate},
				{X: x.high * 1.2, Y: c.Kept.Rate},
			}}); err != nil {
				return page.Chart{}, err
			}
		}
	}
	x.axis(&p.X)
	y.axis(&p.Y)
	svg, err := page.Inline(p, "Cycles per second by the number of users, on logarithmic scales; the tables have the figures.")
	caption := "Dots are medians, in the band of their interval. A cross is a point that is marked below and not fitted. The dotted line is the fitted scalability law; thick ticks mark its knee and its peak."
	if o != nil {
		caption += " The horizontal line is the highest rate that kept " + o.String() + "."
	}
	return page.Chart{Title: "Throughput over users", Caption: caption, Legend: legend(curves), SVG: svg}, err
}

// between samples the law from one number of users to another.
func (f Fit) between(from, to float64) plotter.XYs {
	var out plotter.XYs
	const parts = 60
	for i := range parts + 1 {
		n := from * math.Pow(to/from, float64(i)/parts)
		out = append(out, plotter.XY{X: n, Y: f.At(n)})
	}
	return out
}

// latencies draws latencies over throughput: closed loops as lines, open ones as dots.
func latencies(curves []Curve, o *Objective) (page.Chart, error) {
	name := "p99"
	if o != nil {
		name = o.name()
	}
	p := page.NewPlot("cycles/s", "acquire "+name+", ms")
	var x, y extent
	for i, c := range curves {
		var loops [2]plotter.XYs
		for n, readings := range [][]Reading{c.Closed, c.Open} {
			for _, r := range readings {
				at := plotter.XY{X: r.Cycles.Mid, Y: r.Latency[name].Mid}
				if at.X > 0 && at.Y > 0 && len(r.Marks) == 0 {
					x.add(at.X)
					y.add(at.Y)
					loops[n] = append(loops[n], at)
				}
			}
		}
		if err := add(p, page.Style(i), shape{line: loops[0]}, shape{dots: loops[0], glyph: draw.CircleGlyph{}},
			shape{dots: loops[1], glyph: draw.TriangleGlyph{}}); err != nil {
			return page.Chart{}, err
		}
	}
	if y.high == 0 {
		return page.Chart{}, nil
	}
	caption := "The number of users grows along each line. Triangles are open loops, timed from the intended start. A line that turns back has passed its peak."
	if o != nil {
		most := float64(o.Most) / 1e6
		y.add(most)
		if err := add(p, draw.LineStyle{Color: page.Ink, Width: 1, Dashes: []vg.Length{6, 4}},
			shape{line: plotter.XYs{{X: x.low / 1.2, Y: most}, {X: x.high * 1.2, Y: most}}}); err != nil {
			return page.Chart{}, err
		}
		caption += " The horizontal line is the objective, " + figure.Milli(most) + "."
	}
	x.axis(&p.X)
	y.axis(&p.Y)
	svg, err := page.Inline(p, "Latency in ms by cycles per second, on logarithmic scales; the tables have the figures.")
	return page.Chart{Title: "Latency over throughput", Caption: caption, Legend: legend(curves), SVG: svg}, err
}

// spectra draws the latencies of each point, from the median to the tail.
func (c Curve) spectra() ([]page.Chart, error) {
	var out []page.Chart
	for _, loop := range []struct {
		name     string
		readings []Reading
	}{{"closed loop", c.Closed}, {"open loop", c.Open}} {
		measured := slices.DeleteFunc(slices.Clone(loop.readings),
			func(r Reading) bool { return !(r.Latency["p50"].Mid > 0) })
		for some := range slices.Chunk(measured, page.Styles) {
			p := page.NewPlot("percentile", "acquire, ms")
			ch := page.Chart{
				Title:   c.Name() + ", " + loop.name,
				Caption: "Medians over the samples. Each decade to the right is ten times rarer.",
			}
			var y extent
			for i, r := range some {
				var pts plotter.XYs
				for q, name := range Quantiles {
					if v := r.Latency[name].Mid; v > 0 {
						pts = append(pts, plotter.XY{X: []float64{2, 10, 100, 1000, 10_000}[q], Y: v})
						y.add(v)
					}
				}
				if err := add(p, page.Style(i), shape{line: pts}); err != nil {
					return nil, err
				}
				ch.Legend = append(ch.Legend, page.Entry{Class: "key s" + strconv.Itoa(i), Name: r.at()})
			}
			y.axis(&p.Y)
			p.X.Scale, p.X.Tick.Marker, p.X.Min, p.X.Max = plot.LogScale{}, page.Percentiles(10_000)[1:], 2, 10_000
			var err error
			if ch.SVG, err = page.Inline(p,
				"Latency of an acquire in ms by percentile; the table has the figures."); err != nil {
				return nil, err
			}
			out = append(out, ch)
		}
	}
	return out, nil
}

// shape is a line, dots or an area of a series.
type shape struct {
	line, dots, area plotter.XYs
	glyph            draw.GlyphDrawer
}

// add draws shapes in a style; shapes without points draw nothing.
func add(p *plot.Plot, style draw.LineStyle, shapes ...shape) error {
	for _, s := range shapes {
		if len(s.line) > 1 {
			l, err := plotter.NewLine(s.line)
			if err != nil {
				return fmt.Errorf("chart: %w", err)
			}
			l.LineStyle = style
			p.Add(l)
		}
		if len(s.dots) > 0 {
			d, err := plotter.NewScatter(s.dots)
			if err != nil {
				return fmt.Errorf("chart: %w", err)
			}
			d.GlyphStyle = draw.GlyphStyle{Color: style.Color, Radius: 2.6, Shape: s.glyph}
			p.Add(d)
		}
		if len(s.area) > 2 {
			a, err := plotter.NewPolygon(s.area)
			if err != nil {
				return fmt.Errorf("chart: %w", err)
			}
			a.Color, a.LineStyle.Width = faint{style.Color, 50}, 0
			p.Add(a)
		}
	}
	return nil
}

// faint is a translucent colour. The SVG backend rounds colours down: its input must lie a little above, or the page
// does not recognise the colour.
type faint struct {
	color.Color
	alpha uint32
}

// RGBA implements color.Color.
func (f faint) RGBA() (r, g, b, a uint32) {
	r, g, b, _ = f.Color.RGBA()
	a = f.alpha * 0x101
	up := func(v uint32) uint32 { return (v>>8)*a/255 + 2 }
	return up(r), up(g), up(b), a
}
