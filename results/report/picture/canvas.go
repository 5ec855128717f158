package picture

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

//go:embed picture.css
var pictureCSS string

// canvas writes the elements of an SVG file. Labels are collected in over, and drawn on top of everything else.
type canvas struct {
	bytes.Buffer
	over bytes.Buffer
}

// hues is the number of clients' colours; in picture.css they are numbered from 0.
const hues = 5

func hue(class string, n int) string { return class + strconv.Itoa(n%hues) }

func (c *canvas) f(format string, args ...any) { fmt.Fprintf(c, format, args...) }

// px formats a length with at most one decimal.
func px(f float64) string {
	return strconv.FormatFloat(math.Round(f*10)/10+0, 'f', -1, 64) // + 0: there is no -0
}

func escape(s string) string {
	var b bytes.Buffer
	// A bytes.Buffer never fails.
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// open begins the file: name, description, style, patterns and arrow heads.
func (c *canvas) open(w, h float64, title, desc string) {
	c.f(`<svg xmlns="http://www.w3.org/2000/svg" class="lq" role="img" aria-labelledby="lq-title lq-desc" viewBox="0 0 %s %s" width="%s" height="%s">`+"\n",
		px(w), px(h), px(w), px(h))
	c.f("<title id=\"lq-title\">%s</title>\n<desc id=\"lq-desc\">%s</desc>\n", escape(title), escape(desc))
	c.f("<style>\n%s</style>\n<defs>\n", pictureCSS)
	for i := range hues {
		c.f(`<pattern id="lq-p%d" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="lq-paper" width="6" height="6"/><rect class="lq-f%d" width="2.4" height="6"/></pattern>`+"\n", i, i)
	}
	for _, head := range []string{"msg", "access", "stale"} {
		c.f(`<marker id="lq-a-%s" viewBox="0 0 10 10" refX="9" refY="5" markerUnits="userSpaceOnUse" markerWidth="10" markerHeight="10" orient="auto"><path class="lq-head-%s" d="M0 1L10 5L0 9z"/></marker>`+"\n", head, head)
	}
	c.defineBreaks()
	c.f("</defs>\n")
}

func (c *canvas) close() { c.f("</svg>\n") }

func (c *canvas) rect(class string, x, y, w, h, r float64) {
	if w <= 0 || h <= 0 {
		return
	}
	c.f(`<rect class="%s" x="%s" y="%s" width="%s" height="%s" rx="%s"/>`+"\n", class, px(x), px(y), px(w), px(h),
		px(r))
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.f(`<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`+"\n", class, px(x1), px(y1), px(x2), px(y2))
}

// arrow draws a line whose class gives it a head.
func (c *canvas) arrow(class string, x1, y1, x2, y2 float64) {
	c.line(class+" lq-arrow", x1, y1, x2, y2)
}

func (c *canvas) circle(class string, x, y, r float64) {
	c.f(`<circle class="%s" cx="%s" cy="%s" r="%s"/>`+"\n", class, px(x), px(y), px(r))
}

func (c *canvas) text(class string, x, y float64, s string) { c.anchored(class, x, y, "start", s) }

func (c *canvas) anchored(class string, x, y float64, anchor, s string) {
	c.f(`<text class="%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", class, px(x), px(y), anchor, escape(s))
}

// label draws a text that nothing may cross.
func (c *canvas) label(class string, x, y float64, anchor, s string) {
	fmt.Fprintf(&c.over, `<text class="lq-label%s" x="%s" y="%s" text-anchor="%s">%s</text>`+"\n", class, px(x), px(y),
		anchor, escape(s))
}

// drawLabels draws the labels on top of everything else.
func (c *canvas) drawLabels() {
	_, _ = c.over.WriteTo(&c.Buffer) // a bytes.Buffer takes everything
}

func pillWidth(s string) float64 { return 7.4*float64(len(s)) + 24 }

// pill draws a text on a rounded background, centred.
func (c *canvas) pill(class string, x, y float64, s string) {
	w := pillWidth(s)
	fmt.Fprintf(&c.over, `<rect class="%s" x="%s" y="%s" width="%s" height="24" rx="12"/>`+"\n", class, px(x-w/2),
		px(y-12), px(w))
	c.label(" "+class+"-text", x, y+4, "middle", s)
}

// stop draws the mark of a refused access.
func (c *canvas) stop(x, y float64) {
	c.f(`<g class="lq-stop"><circle cx="%s" cy="%s" r="8"/><line x1="%s" y1="%s" x2="%s" y2="%s"/></g>`+"\n",
		px(x), px(y), px(x-4), px(y), px(x+4), px(y))
}

// breaks has the two lengths of a break: across a lane and across the axis.
var breaks = map[string]float64{"lane": bandHalf + 5, "axis": 6}

// defineBreaks defines a break of each length around the origin: a strip of paper between two waves.
func (c *canvas) defineBreaks() {
	for _, name := range []string{"axis", "lane"} {
		half := breaks[name]
		wave := func(y float64) string {
			return fmt.Sprintf("M%s %sQ%s %s 0 %sT%s %s", px(-half), px(y), px(-half/2), px(y-5), px(y), px(half),
				px(y))
		}
		c.f(`<g id="lq-tear-%s"><path class="lq-tear-paper" d="%s"/><path class="lq-tear" d="%s"/><path class="lq-tear" d="%s"/></g>`+"\n",
			name, wave(0), wave(-3), wave(3))
	}
}

// drawBreak draws a break.
func (c *canvas) drawBreak(name string, x, y float64) {
	c.f(`<use href="#lq-tear-%s" x="%s" y="%s"/>`+"\n", name, px(x), px(y))
}
