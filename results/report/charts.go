package report

import (
	"errors"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/page"
)

// entries returns the legend of the first series, and of the faults if there are any.
func entries(bands []span, names ...string) []page.Entry {
	var out []page.Entry
	for i, n := range names {
		out = append(out, page.Entry{Class: "key s" + strconv.Itoa(i), Name: n})
	}
	if len(bands) > 0 {
		out = append(out, page.Entry{Class: "key band", Name: "fault"})
	}
	return out
}

// span is the time of a fault on a time axis, in s since the start.
type span struct{ from, to float64 }

// charts draws the latency spectrum, if there is one, and the time lines, if anything was granted.
func charts(s spectrum, t *timeline, faults []history.Fault) ([]page.Chart, error) {
	var out []page.Chart
	if len(s) > 0 {
		c, err := s.chart()
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if !slices.ContainsFunc(t.grants, func(n float64) bool { return n > 0 }) {
		return out, nil
	}
	bands := t.bands(faults)
	for _, timed := range []func([]span) (page.Chart, error){t.latencyChart, t.grantsChart} {
		c, err := timed(bands)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// chart shows latency over the percentile, both on logarithmic scales, because readers look for the tail.
func (s spectrum) chart() (page.Chart, error) {
	p := page.NewPlot("percentile", "latency, ms")
	low, high, deepest := math.Inf(1), 0.0, 1.0
	for i, name := range results.Operations {
		h := s[name]
		if h == nil || h.TotalCount() == 0 {
			continue
		}
		var pts plotter.XYs
		for x := 1.0; x <= float64(h.TotalCount()); x *= 1.05 {
			y := shownMS(h.ValueAtQuantile(100 * (1 - 1/x)))
			pts = append(pts, plotter.XY{X: x, Y: y})
			low, high = min(low, y), max(high, y)
		}
		worst := shownMS(h.Max())
		pts = append(pts, plotter.XY{X: float64(h.TotalCount()), Y: worst})
		low, high = min(low, worst), max(high, worst)
		deepest = max(deepest, pts[len(pts)-1].X)
		if err := page.Line(p, name, i, plotter.NoStep, pts); err != nil {
			return page.Chart{}, err
		}
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, page.Percentiles(deepest)
	p.X.Min, p.X.Max = 1, max(deepest, 10)
	logY(p, low, high)
	svg, err := page.Inline(p, "Latency of acquire, hold, release and handoff in ms by percentile, on logarithmic scales; the table of latencies has the figures.")
	return page.Chart{
		Title: "Latency spectrum", Caption: "The tail is on the right, up to the maximum: each decade is ten times rarer.",
		Legend: entries(nil, results.Operations...), SVG: svg,
	}, err
}

// leastMS is the lowest latency on a logarithmic axis, in ms.
const leastMS = 1e-4

// shownMS converts a latency from ns to ms. None is below the axis: a holder that died as soon as it had the lock
// held it for no time.
func shownMS(ns int64) float64 { return max(float64(ns)/1e6, leastMS) }

// logY gives a chart whole decades.
func logY(p *plot.Plot, low, high float64) {
	p.Y.Scale = plot.LogScale{}
	p.Y.Min = math.Pow(10, math.Floor(math.Log10(max(low, leastMS))))
	p.Y.Max = math.Pow(10, math.Ceil(math.Log10(max(high, 1e-3))))
	if p.Y.Max <= p.Y.Min {
		p.Y.Max = p.Y.Min * 10
	}
	p.Y.Tick.Marker = page.LogTicks
}

// bands returns the times of the faults that bit.
func (t *timeline) bands(faults []history.Fault) []span {
	var out []span
	whole := float64(int64(len(t.grants))*t.width) / 1e9
	for _, f := range faults {
		if f.Receipt.Status == history.NotInstalled || f.Traits.Idle {
			continue
		}
		s := span{float64(f.Start-t.start) / 1e9, whole}
		if f.End != 0 {
			s.to = float64(f.End-t.start) / 1e9
		}
		s.from, s.to = max(s.from, 0), min(s.to, whole)
		if s.to > s.from {
			out = append(out, s)
		}
	}
	return out
}

// shadeBands draws the faults behind the series.
func shadeBands(p *plot.Plot, bands []span, low, high float64) error {
	for _, b := range bands {
		poly, err := plotter.NewPolygon(plotter.XYs{
			{X: b.from, Y: low},
			{X: b.to, Y: low},
			{X: b.to, Y: high},
			{X: b.from, Y: high},
		})
		if err != nil {
			return err
		}
		r, g, bl, _ := page.Shade.RGBA()
		poly.Color = color.NRGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(bl >> 8), A: 70}
		poly.LineStyle.Width = 0
		p.Add(poly)
	}
	return nil
}

// x returns the middle of a step in s since the start.
func (t *timeline) x(i int) float64 { return (float64(i) + 0.5) * float64(t.width) / 1e9 }

func (t *timeline) latencyChart(bands []span) (page.Chart, error) {
	var median, worst []plotter.XYs // a piece for each stretch with grants
	low, high := math.Inf(1), 0.0
	for i, h := range t.steps {
		if h == nil {
			continue
		}
		if i == 0 || t.steps[i-1] == nil {
			median, worst = append(median, nil), append(worst, nil)
		}
		m, w := shownMS(h.ValueAtQuantile(50)), shownMS(h.Max())
		last := len(median) - 1
		median[last] = append(median[last], plotter.XY{X: t.x(i), Y: m})
		worst[last] = append(worst[last], plotter.XY{X: t.x(i), Y: w})
		low, high = min(low, m), max(high, w)
	}
	p := page.NewPlot("s since start", "acquire, ms")
	logY(p, low, high)
	low, high = p.Y.Min, p.Y.Max
	err := errors.Join(shadeBands(p, bands, low, high),
		page.Line(p, "median", 0, plotter.NoStep, median...), page.Line(p, "worst", 1, plotter.NoStep, worst...))
	if err != nil {
		return page.Chart{}, err
	}
	p.X.Min, p.X.Max = 0, float64(int64(len(t.grants))*t.width)/1e9
	p.Y.Min, p.Y.Max = low, high
	p.X.Tick.Marker = page.LinearTicks
	svg, err := page.Inline(p, "Median and worst acquire latency in ms over the run's time, faults shaded.")
	caption := "By the time of the grant, in steps of " + figure.Duration(t.width) +
		"; the line breaks where no lock was granted."
	return page.Chart{
		Title: "Acquire latency over time", Caption: caption, Legend: entries(bands, "median", "worst"), SVG: svg,
	}, err
}

func (t *timeline) grantsChart(bands []span) (page.Chart, error) {
	var pts plotter.XYs
	high := 1.0
	for i, n := range t.grants {
		pts = append(pts, plotter.XY{X: t.x(i), Y: n})
		high = max(high, n*1.1)
	}
	p := page.NewPlot("s since start", "grants per "+figure.Duration(t.width))
	if err := shadeBands(p, bands, 0, high); err != nil {
		return page.Chart{}, err
	}
	if err := page.Line(p, "grants", 0, plotter.MidStep, pts); err != nil {
		return page.Chart{}, err
	}
	p.X.Min, p.X.Max = 0, float64(int64(len(t.grants))*t.width)/1e9
	p.Y.Min, p.Y.Max = 0, high
	p.X.Tick.Marker, p.Y.Tick.Marker = page.LinearTicks, page.LinearTicks
	svg, err := page.Inline(p, "Number of grants in each "+figure.Duration(t.width)+" of the run, faults shaded.")
	return page.Chart{
		Title: "Grants over time", Legend: entries(bands, "grants"), SVG: svg,
		Caption: "In steps of " + figure.Duration(t.width) + "; at zero no lock was granted.",
	}, err
}
