package report

import "strings"

// picture draws a story the way Martin Kleppmann drew the paused client in "How to do distributed locking", from what
// happened: a lane for each holder, for the lock service or those of its servers that played a part, and for the resource, time running
// down. The same story gives the same bytes.
func picture(s *story) []byte { return render(place(s)) }

// render draws a layout, from the back to the front.
func render(l *layout) []byte {
	c := &canvas{}
	c.open(l.W, l.H, l.Title, describe(l))
	c.rect("lq-bg", 0.5, 0.5, l.W-1, l.H-1, 10)
	for i, line := range l.Titles {
		c.text("lq-title", 24, 36+24*float64(i), line)
	}
	for i, line := range l.Lines {
		c.text("lq-sub", 24, 36+24*float64(len(l.Titles))+18*float64(i), line)
	}
	drawGroup(c, l)
	drawRegions(c, l)
	drawLanes(c, l)
	drawBands(c, l)
	drawHolds(c, l)
	drawAxis(c, l)
	for _, r := range l.Rows {
		drawRow(c, l, r)
	}
	c.lay()
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

// drawGroup draws the box around the servers of the lock service.
func drawGroup(c *canvas, l *layout) {
	from, to, ok := l.group()
	if !ok {
		return
	}
	c.rect("lq-group", from, l.Heads-22, to-from, l.Bottom-l.Heads+22, 8)
	c.anchored("lq-small", (from+to)/2, l.Heads-6, "middle", shortened(l.groupName(), int((to-from+60)/6)))
}

// groupName says what the servers are.
func (l *layout) groupName() string {
	env := l.scene.env
	return strings.TrimSpace("lock service: " + env.Backend)
}

func drawRegions(c *canvas, l *layout) {
	for _, r := range l.Regions {
		class := "lq-overlap"
		if r.Double {
			class = "lq-double"
		}
		a, b := min(l.X[r.A], l.X[r.B]), max(l.X[r.A], l.X[r.B])
		top, bottom := l.at(r.From), l.at(r.To)
		c.rect(class, a, top, b-a, max(bottom-top, 4), 0)
	}
}

func drawLanes(c *canvas, l *layout) {
	for i, lane := range l.Lanes {
		class := "lq-head"
		switch lane.Kind {
		case laneClient:
			class += hue(" lq-t", lane.Hue)
		case laneNode:
			class = "lq-head lq-node"
		}
		y := l.Heads + 14
		if lane.Kind == laneNode {
			y += 8 // it has no second line, and the service's name above
		}
		c.anchored(class, l.X[i], y, "middle", lane.Name)
		if lane.Sub != "" {
			c.anchored("lq-small", l.X[i], l.Heads+30, "middle", lane.Sub)
		}
		c.line("lq-life", l.X[i], l.Heads+38, l.X[i], l.Bottom)
	}
}

func drawBands(c *canvas, l *layout) {
	for _, b := range l.Bands {
		top, bottom := l.at(b.From), l.at(b.To)
		c.rect("lq-band", l.X[b.Lane]-bandHalf, top, 2*bandHalf, max(bottom-top, 6), 4)
	}
	for _, b := range l.Serves {
		top, bottom := l.at(b.From), l.at(b.To)
		c.rect("lq-serves", l.X[b.Lane]-3, top, 6, max(bottom-top, 4), 2)
	}
}

// drawHolds draws each hold: waiting dotted, entitled solid, past its validity hatched.
func drawHolds(c *canvas, l *layout) {
	for _, h := range l.Holds {
		x, k := l.X[h.Lane], l.Lanes[h.Lane].Hue
		top, bottom := l.at(h.Ref.Start), l.at(h.Ref.End)
		c.line("lq-wait"+hue(" lq-s", k), x, l.at(h.Asked), x, top)
		solid := max(bottom, top+4)
		switch {
		case h.Ref.Valid <= h.Ref.Start:
			solid = top
		case h.Ref.End == 0 || h.Ref.Valid < h.Ref.End:
			solid = min(bottom, l.at(h.Ref.Valid))
		}
		bottom = max(bottom, top+4) // one that ended as it began is seen too
		c.rect("lq-hatch"+hue(" lq-h", k), x-barHalf, top, 2*barHalf, bottom-top, 2)
		c.rect("lq-solid"+hue(" lq-f", k), x-barHalf, top, 2*barHalf, solid-top, 2)
		if h.Ref.End != 0 && h.Ref.Valid > h.Ref.End && l.hasMark(h.Lane, h.Ref.Valid) {
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

func drawAxis(c *canvas, l *layout) {
	c.anchored("lq-small", axisX-9, l.Heads+30, "end", "ms")
	c.line("lq-axis", axisX, l.Heads+38, axisX, l.Bottom)
	for _, r := range l.Rows {
		if r.Tick == "" {
			continue
		}
		c.line("lq-axis", axisX-4, r.Y, axisX, r.Y)
		c.anchored("lq-tick", axisX-9, r.Y+4, "end", r.Tick)
	}
	for _, g := range l.Gaps {
		c.tear("axis", axisX, g.Y)
		for _, x := range l.X {
			c.tear("lane", x, g.Y)
		}
		c.anchored("lq-gap", axisX-9, g.Y+4, "end", g.Label)
	}
}
