// Package picture draws a story as an SVG file.
package picture

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/story"
)

// Draw draws a story in the manner of Martin Kleppmann's paused client ("How to do distributed locking"). There is a
// lane for each holder, for the lock service or its servers with own actions, and for the resource. Time runs down.
// The same story gives the same bytes.
func Draw(s *story.Story) []byte { return render(place(s)) }

// render draws a layout, from the back to the front.
func render(l *layout) []byte {
	c := &canvas{}
	c.open(l.W, l.H, l.story.Title, describe(l))
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
	c.drawLabels()
	drawLegend(c, l)
	c.close()
	return c.Bytes()
}

// describe describes the picture in words, for readers who cannot see it.
func describe(l *layout) string {
	d := l.story.Text
	for _, r := range l.Rows {
		who := l.story.Lanes[r.Lane].Name
		if r.Kind == story.MarkRegion {
			who = "region"
		}
		d += "\n" + tickLabels([]story.Mark{r.Mark}, l.story.Start)[0] + " ms, " + who + ": " + r.Label
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
	c.anchored("lq-small", (from+to)/2, l.Heads-6, "middle", l.groupLabel(to-from))
}

// groupLabel shortens the group's name to fit into the frame around the servers.
func (l *layout) groupLabel(width float64) string {
	most := int((width - 6) / 7) // of the widest common font at 11.5 px
	for _, name := range []string{strings.TrimSpace("lock service: " + l.story.Backend), l.story.Backend} {
		if name != "" && len([]rune(name)) <= most {
			return name
		}
	}
	return figure.Shorten(l.story.Backend, most)
}

func drawRegions(c *canvas, l *layout) {
	for _, r := range l.story.Regions {
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
	for i, lane := range l.story.Lanes {
		class := "lq-head"
		switch lane.Kind {
		case story.LaneClient:
			class += hue(" lq-t", lane.Hue)
		case story.LaneNode:
			class = "lq-head lq-node"
		}
		y := l.Heads + 14
		if lane.Kind == story.LaneNode {
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
	for _, b := range l.story.Bands {
		top, bottom := l.at(b.From), l.at(b.To)
		c.rect("lq-band", l.X[b.Lane]-bandHalf, top, 2*bandHalf, max(bottom-top, 6), 4)
	}
	for _, b := range l.story.Serves {
		top, bottom := l.at(b.From), l.at(b.To)
		c.rect("lq-serves", l.X[b.Lane]-3, top, 6, max(bottom-top, 4), 2)
	}
}

// drawHolds draws each hold: waiting dotted, entitled solid, past its validity hatched.
func drawHolds(c *canvas, l *layout) {
	for _, h := range l.story.Holds {
		x, k := l.X[h.Lane], l.story.Lanes[h.Lane].Hue
		top, bottom := l.at(h.Ref.Start), l.at(h.Ref.End)
		c.line("lq-wait"+hue(" lq-s", k), x, l.at(h.Asked), x, top)
		solid := max(bottom, top+4)
		switch {
		case h.Ref.Valid <= h.Ref.Start:
			solid = top
		case h.Ref.End == 0 || h.Ref.Valid < h.Ref.End:
			solid = min(bottom, l.at(h.Ref.Valid))
		}
		bottom = max(bottom, top+4) // a hold that ended as it began is visible too
		c.rect("lq-hatch"+hue(" lq-h", k), x-barHalf, top, 2*barHalf, bottom-top, 2)
		c.rect("lq-solid"+hue(" lq-f", k), x-barHalf, top, 2*barHalf, solid-top, 2)
		if h.Ref.End != 0 && h.Ref.Valid > h.Ref.End && l.story.HasMark(h.Lane, h.Ref.Valid) {
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
		c.drawBreak("axis", axisX, g.Y)
		for _, x := range l.X {
			c.drawBreak("lane", x, g.Y)
		}
		c.anchored("lq-gap", axisX-9, g.Y+4, "end", g.Label)
	}
}

// drawRow draws one mark.
func drawRow(c *canvas, l *layout, r placed) {
	switch r.Kind {
	case story.MarkNote, story.MarkFault, story.MarkSeen, story.MarkSent:
		drawNote(c, l, r)
	case story.MarkRegion:
		class := "lq-pill-overlap"
		if l.isPillDouble(r) {
			class = "lq-pill-double"
		}
		half := pillWidth(r.Label)/2 + 8
		c.pill(class, min(max((l.X[r.Lane]+l.X[r.To])/2, half), l.W-half), r.Y, r.Label)
	case story.MarkAsk, story.MarkAnswer, story.MarkExchange:
		drawMessage(c, l, r)
	default:
		drawAccess(c, l, r)
	}
}

func (l *layout) isPillDouble(r placed) bool {
	return slices.ContainsFunc(l.story.Regions, func(g story.Region) bool {
		return g.Double && g.From == r.Time && g.A == r.Lane &&
			g.B == r.To
	})
}

// drawMessage draws messages between a client and the lock service, and the servers at which a grant was observed.
func drawMessage(c *canvas, l *layout, r placed) {
	from, to := l.edge(r.Lane, r.To)
	y := r.Y
	switch r.Kind {
	case story.MarkAsk:
		c.arrow("lq-msg", from, y, to, y+6)
	case story.MarkAnswer:
		c.arrow("lq-msg lq-reply", to, y-6, from, y)
		y -= 5
	default:
		c.arrow("lq-msg", from, y-3, to, y-3)
		c.arrow("lq-msg lq-reply", to, y+3, from, y+3)
		y -= 2
	}
	for _, n := range r.At {
		c.circle("lq-dot"+hue(" lq-f", l.story.Lanes[r.Lane].Hue), l.X[n], r.Y, 4.5)
	}
	class := ""
	if r.Bad {
		class += " lq-bad"
	}
	l.label(c, class, r, y-6)
}

// drawAccess draws the resource's effects: reads towards the client, writes towards the resource, a refused one up to
// a stop mark in front of it.
func drawAccess(c *canvas, l *layout, r placed) {
	from, to := l.edge(r.Lane, r.To)
	y := r.Y
	if r.Since != 0 {
		y = min(l.at(r.Since), r.Y-6)
		c.circle("lq-sent", from, y, 3)
	}
	side := 1.0
	if to < from {
		side = -1
	}
	class := ""
	switch r.Kind {
	case story.MarkRead:
		if r.Since != 0 {
			c.line("lq-msg lq-reply", from, y, to, r.Y)
		}
		c.arrow("lq-access", to, r.Y, from, r.Y)
	case story.MarkStale:
		class = " lq-red"
		c.arrow("lq-stale", from, y, to-side*4, r.Y)
	case story.MarkRefused:
		class = " lq-red"
		c.line("lq-refused", from, y, to-side*22, r.Y)
		c.stop(to-side*13, r.Y)
	default:
		c.arrow("lq-access", from, y, to-side*4, r.Y)
	}
	if r.Kind != story.MarkRefused {
		dot := "lq-dot" + hue(" lq-f", l.story.Lanes[r.Lane].Hue)
		if r.Kind == story.MarkStale {
			dot = "lq-dot lq-dot-red"
		}
		c.circle(dot, l.X[r.To], r.Y, 4)
	}
	l.label(c, class, r, r.Y-6)
	if r.Below != "" {
		r.Label = r.Below
		l.label(c, class+" lq-second", r, r.Y+16)
	}
}

// drawNote writes next to a lane: to its right or, without space, to its left.
func drawNote(c *canvas, l *layout, r placed) {
	class := " lq-note"
	switch r.Kind {
	case story.MarkFault:
		class = " lq-fault"
	case story.MarkSeen:
		class = " lq-seen"
	}
	x := l.X[r.Lane]
	if lane := l.story.Lanes[r.Lane]; r.Kind == story.MarkNote && lane.Kind == story.LaneClient {
		c.line("lq-end"+hue(" lq-s", lane.Hue), x-bandHalf-3, r.Y, x+bandHalf+3, r.Y)
	}
	if r.Kind == story.MarkSeen {
		c.circle("lq-eye", x, r.Y, 3.5)
	}
	if x+bandHalf+9+charWidth*float64(len(r.Label)) > l.W-8 {
		c.label(class, x-bandHalf-7, r.Y+4, "end", r.Label)
		return
	}
	c.label(class, x+bandHalf+7, r.Y+4, "start", r.Label)
}

// edge returns where an arrow leaves a hold's bar and where it meets its far end.
func (l *layout) edge(lane, far int) (from, to float64) {
	x, end := l.X[lane], l.far(lane, far)
	if end > x {
		return x + barHalf + 2, end - 2
	}
	return x - barHalf - 2, end + 2
}

// label writes next to the client, on the side of the arrow; for a slope, behind its far end.
func (l *layout) label(c *canvas, class string, r placed, y float64) {
	right := l.far(r.Lane, r.To) > l.X[r.Lane]
	switch {
	case r.Since != 0 && right:
		c.label(class, l.X[r.To]+bandHalf+7, y+4, "start", r.Label)
	case r.Since != 0:
		c.label(class, l.X[r.To]-bandHalf-7, y+4, "end", r.Label)
	case right:
		c.label(class, l.X[r.Lane]+bandHalf+5, y, "start", r.Label)
	default:
		c.label(class, l.X[r.Lane]-bandHalf-5, y, "end", r.Label)
	}
}

// drawLegend explains the symbols that this picture uses.
func drawLegend(c *canvas, l *layout) {
	x, y := 24.0, l.Bottom+26
	sign := func(words string, sign func(x float64)) {
		if width := 30 + 6.3*float64(len(words)) + 16; x+width > l.W {
			x, y = 24, y+20
		}
		sign(x)
		c.text("lq-small", x+28, y+4, words)
		x += 28 + 6.3*float64(len(words)) + 16
	}
	box := func(class string) func(float64) {
		return func(x float64) { c.rect(class, x, y-6, 22, 12, 2) }
	}
	switch {
	case l.story.NoLock:
		sign("at work, without a lock", box("lq-solid lq-f0"))
	case len(l.story.Holds) > 0:
		sign("holds, entitled", box("lq-solid lq-f0"))
	}
	if l.anyPast() && !l.story.NoLock {
		sign("holds on past its validity", box("lq-hatch lq-h0"))
	}
	if len(l.story.Bands) > 0 {
		sign("fault", box("lq-band"))
	}
	if len(l.story.Serves) > 0 {
		sign("takes writes", func(x float64) { c.rect("lq-serves", x, y-3, 22, 6, 2) })
	}
	seen := map[story.MarkKind]bool{}
	at := false
	for _, r := range l.Rows {
		seen[r.Kind] = true
		at = at || len(r.At) > 0
	}
	if at {
		sign("has the key", func(x float64) { c.circle("lq-dot lq-f0", x+11, y, 4.5) })
	}
	if seen[story.MarkStale] {
		sign("stale write", func(x float64) { c.arrow("lq-stale", x, y, x+22, y) })
	}
	if seen[story.MarkRefused] {
		sign("refused", func(x float64) { c.stop(x+12, y) })
	}
	for i, n := range l.Notes {
		c.text("lq-small", 24, y+24+16*float64(i), n)
	}
	c.anchored("lq-small lq-foot", l.W-24, y+24+16*float64(len(l.Notes)), "end", l.story.Foot)
}

// anyPast reports whether a hold is drawn past its validity.
func (l *layout) anyPast() bool {
	return slices.ContainsFunc(l.story.Holds,
		func(h story.Bar) bool { return h.Ref.End == 0 || h.Ref.Valid < h.Ref.End })
}
