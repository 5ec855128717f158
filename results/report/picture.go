package report

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// Picture draws a witness the way Martin Kleppmann drew the paused client in "How to do distributed locking", from the
// events that happened: a lane for each holder, the lock service and the resource, time running down. The events are
// those around the witness; grants of other users among them are counted. The same input gives the same bytes.
func Picture(events []history.Event, faults []history.Fault, w results.Witness, env results.Env) ([]byte, error) {
	s, err := tell(events, faults, w, env)
	if err != nil {
		return nil, err
	}
	return render(place(s)), nil
}

// render draws a layout, from the back to the front.
func render(l *layout) []byte {
	c := &canvas{}
	c.open(l.W, l.H, l.Title, describe(l))
	c.rect("lq-bg", 0.5, 0.5, l.W-1, l.H-1, 10)
	c.text("lq-title", 24, 36, l.Title)
	for i, line := range l.Lines {
		c.text("lq-sub", 24, 60+18*float64(i), line)
	}
	drawRegion(c, l)
	drawLanes(c, l)
	drawBands(c, l)
	drawHolds(c, l)
	drawAxis(c, l)
	for _, r := range l.Rows {
		drawRow(c, l, r)
	}
	drawLegend(c, l)
	c.close()
	return c.Bytes()
}

// describe tells the picture in words, for those who cannot see it.
func describe(l *layout) string {
	d := l.Text
	for _, r := range l.Rows {
		who := l.Lanes[r.Lane].Name
		if r.Kind == markRegion {
			who = "region"
		}
		d += "\n" + tickLabels([]mark{r.mark}, l.Start)[0] + " ms, " + who + ": " + r.Label
		if r.Below != "" {
			d += " (" + r.Below + ")"
		}
	}
	return d
}

func drawRegion(c *canvas, l *layout) {
	r := l.Region
	if r == nil {
		return
	}
	class := "lq-overlap"
	if r.Double {
		class = "lq-double"
	}
	a, b := min(l.X[r.A], l.X[r.B]), max(l.X[r.A], l.X[r.B])
	top, bottom := l.at(r.From), l.at(r.To)
	c.rect(class, a, top, b-a, max(bottom-top, 4), 0)
}

func drawLanes(c *canvas, l *layout) {
	for i, lane := range l.Lanes {
		class := "lq-head"
		if lane.Kind == laneClient {
			class += hue(" lq-t", lane.Hue)
		}
		c.anchored(class, l.X[i], l.Heads+14, "middle", lane.Name)
		c.anchored("lq-small", l.X[i], l.Heads+30, "middle", lane.Sub)
		c.line("lq-life", l.X[i], l.Heads+40, l.X[i], l.Bottom)
	}
}

func drawBands(c *canvas, l *layout) {
	for _, b := range l.Bands {
		top, bottom := l.at(b.From), l.at(b.To)
		c.rect("lq-band", l.X[b.Lane]-bandHalf, top, 2*bandHalf, max(bottom-top, 6), 4)
	}
}

// drawHolds draws each hold: waiting dotted, entitled solid, past its validity hatched.
func drawHolds(c *canvas, l *layout) {
	for _, h := range l.Holds {
		x, k := l.X[h.Lane], l.Lanes[h.Lane].Hue
		top, bottom := l.at(h.Ref.Start), l.at(h.Ref.End)
		c.line("lq-wait"+hue(" lq-s", k), x, l.at(h.Asked), x, top)
		solid := bottom
		switch {
		case h.Ref.Valid <= h.Ref.Start:
			solid = top
		case h.Ref.End == 0 || h.Ref.Valid < h.Ref.End:
			solid = min(bottom, l.at(h.Ref.Valid))
		}
		c.rect("lq-hatch"+hue(" lq-h", k), x-barHalf, top, 2*barHalf, bottom-top, 2)
		c.rect("lq-solid"+hue(" lq-f", k), x-barHalf, top, 2*barHalf, solid-top, 2)
		if h.Ref.End != 0 && h.Ref.Valid > h.Ref.End && l.hasRow(h.Lane, h.Ref.Valid) {
			c.line("lq-wait"+hue(" lq-s", k), x, bottom, x, l.at(h.Ref.Valid))
		}
		if solid < bottom && solid > top {
			c.line("lq-end"+hue(" lq-s", k), x-bandHalf-3, solid, x+bandHalf+3, solid)
		}
		for _, t := range h.Renewals {
			c.circle("lq-renewal", x, l.at(t), 2.5)
		}
	}
}

func (l *layout) hasRow(lane int, t int64) bool { return l.hasMark(lane, t) }

func drawAxis(c *canvas, l *layout) {
	c.anchored("lq-small", axisX-8, l.Heads+14, "end", "ms since")
	c.anchored("lq-small", axisX-8, l.Heads+30, "end", "start")
	c.line("lq-axis", axisX, l.Heads+40, axisX, l.Bottom)
	for _, r := range l.Rows {
		if r.Tick == "" {
			continue
		}
		c.line("lq-axis", axisX-4, r.Y, axisX, r.Y)
		c.anchored("lq-tick", axisX-9, r.Y+4, "end", r.Tick)
	}
	for _, g := range l.Gaps {
		c.tear(g.Y, axisX-6, axisX+6)
		for _, x := range l.X {
			c.tear(g.Y, x-bandHalf-5, x+bandHalf+5)
		}
		c.text("lq-gap", axisX+12, g.Y+4, g.Label)
	}
}
