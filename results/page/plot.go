package page

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours of charts. Each becomes a variable of the page's style, so that a chart follows light and dark mode.
// Ink is for words and bounds, Shade for times.
var (
	Ink    = rgb(0x17, 0x20, 0x2c)
	faint  = rgb(0xd5, 0xda, 0xe1)
	Shade  = rgb(0xf5, 0xa5, 0x24)
	series = []color.Color{rgb(0x25, 0x63, 0xc9), rgb(0x0d, 0x8a, 0x6c), rgb(0x82, 0x47, 0xb8), rgb(0xc2, 0x4a, 0x1a)}
)

var themed = strings.NewReplacer(
	"#17202C", "var(--ink)", "#D5DAE1", "var(--line)", "#F5A524", "var(--band)",
	"#2563C9", "var(--s0)", "#0D8A6C", "var(--s1)", "#8247B8", "var(--s2)", "#C24A1A", "var(--s3)",
)

func rgb(r, g, b uint8) color.Color { return color.NRGBA{R: r, G: g, B: b, A: 255} }

const (
	chartWidth  = 760 * vg.Length(1)
	chartHeight = 250 * vg.Length(1)
)

// dashes distinguish series if colours do not.
var dashes = [][]vg.Length{nil, {7, 3}, {2, 3}, {9, 3, 2, 3}}

// Styles is the number of series of one chart that look different.
const Styles = 8

// Style returns the look of a series; its entry in a legend has the class "key sN".
func Style(n int) draw.LineStyle {
	n %= Styles
	return draw.LineStyle{Color: series[n%len(series)], Width: 1.8, Dashes: dashes[(n+n/len(series))%len(dashes)]}
}

// NewPlot returns an empty chart in the style of the page.
func NewPlot(x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		for _, s := range []*draw.TextStyle{&a.Label.TextStyle, &a.Tick.Label} {
			s.Color = Ink
			s.Font.Variant = "Sans"
			s.Font.Size = 11
		}
		a.LineStyle.Color, a.Tick.LineStyle.Color = faint, faint
		a.Padding = 4
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = faint, faint
	grid.Horizontal.Width, grid.Vertical.Width = 0.6, 0.6
	p.Add(grid)
	return p
}

// Line adds a series in one or more pieces; a piece of one point is a dot.
func Line(p *plot.Plot, name string, n int, step plotter.StepKind, pieces ...plotter.XYs) error {
	for _, pts := range pieces {
		if len(pts) == 1 {
			dot, err := plotter.NewScatter(pts)
			if err != nil {
				return fmt.Errorf("chart of %s: %w", name, err)
			}
			dot.Color, dot.Shape, dot.Radius = Style(n).Color, draw.CircleGlyph{}, 2
			p.Add(dot)
			continue
		}
		l, err := plotter.NewLine(pts)
		if err != nil {
			return fmt.Errorf("chart of %s: %w", name, err)
		}
		l.LineStyle, l.StepStyle = Style(n), step
		p.Add(l)
	}
	return nil
}

var (
	chartHead = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	chartFont = regexp.MustCompile(`font-family:[^;"]*;?|font-variant:[^;"]*;?`)
)

// Inline draws a chart as an SVG element for a page. The label describes it for readers who cannot see it.
func Inline(p *plot.Plot, label string) (template.HTML, error) {
	c := vgsvg.New(chartWidth, chartHeight)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	head := fmt.Sprintf(`<svg class="chart" role="img" aria-label="%s" viewBox="0 0 %g %g">`, template.HTMLEscapeString(label),
		chartWidth.Points(), chartHeight.Points())
	svg := chartHead.ReplaceAllString(b.String(), "")
	svg = chartFont.ReplaceAllString(themed.Replace(svg), "")
	return template.HTML(head + svg), nil
}

// leastLabels is the minimum number of labels of an axis: with fewer, readers must guess.
const leastLabels = 5

// LinearTicks labels a linear axis at the widest round steps that give enough labels.
var LinearTicks = plot.TickerFunc(func(from, to float64) []plot.Tick {
	if !(to > from) {
		return nil
	}
	power := math.Pow(10, math.Ceil(math.Log10(to-from)))
	for {
		for _, m := range []float64{5, 2, 1} {
			step := power / 10 * m
			first, last := math.Ceil(from/step-1e-9), math.Floor(to/step+1e-9)
			if last-first+1 < leastLabels {
				continue
			}
			var ticks []plot.Tick
			for i := first; i <= last; i++ {
				ticks = append(ticks, tick(i*step+0)) // no -0
			}
			return ticks
		}
		power /= 10
	}
})

// LogTicks labels a logarithmic axis at powers of ten, and between them if these are too few.
var LogTicks = plot.TickerFunc(func(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	for _, within := range [][]float64{{1}, {1, 3}, {1, 2, 5}, {1, 2, 3, 5}, {1, 1.5, 2, 3, 5, 7}} {
		ticks = nil
		for e := math.Floor(math.Log10(from) + 1e-9); math.Pow(10, e) <= to*1.000001; e++ {
			for _, m := range within {
				if v := m * math.Pow(10, e); v >= from*0.999999 && v <= to*1.000001 {
					ticks = append(ticks, tick(v))
				}
			}
		}
		if len(ticks) >= leastLabels {
			break
		}
	}
	return ticks
})

func tick(v float64) plot.Tick {
	return plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', 6, 64)}
}

// Percentiles labels an axis of 1/(1-quantile).
func Percentiles(deepest float64) plot.ConstantTicks {
	ticks := plot.ConstantTicks{
		{Value: 1, Label: "0 %"},
		{Value: 2, Label: "50 %"},
		{Value: 4, Label: "75 %"},
		{Value: 10, Label: "90 %"},
	}
	if deepest < 1000 {
		ticks = append(ticks[:3], plot.Tick{Value: 20.0 / 3, Label: "85 %"}, ticks[3])
	}
	label := ""
	for x := 100.0; x <= deepest*1.001; x *= 10 {
		text := "99 %"
		if x > 100 {
			label += "9"
			text = "99." + label + " %"
		}
		ticks = append(ticks, plot.Tick{Value: x, Label: text})
	}
	return ticks
}
