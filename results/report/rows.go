package report

import "slices"

// drawRow draws one mark.
func drawRow(c *canvas, l *layout, r placed) {
	x := l.X[r.Lane]
	switch r.Kind {
	case markNote, markFault, markSent:
		drawNote(c, l, r)
	case markRegion:
		class := "lq-pill-overlap"
		if l.Region.Double {
			class = "lq-pill-double"
		}
		c.pill(class, (x+l.X[r.To])/2, r.Y, r.Label)
	case markRequest:
		from, to := l.edge(r.Lane, r.To)
		c.arrow("lq-msg", from, r.Y, to, r.Y+8)
		l.label(c, "lq-label", r, r.Y-4)
	case markReply:
		from, to := l.edge(r.Lane, r.To)
		c.arrow("lq-msg lq-reply", to, r.Y-8, from, r.Y)
		l.label(c, "lq-label", r, r.Y-9)
	default:
		drawAccess(c, l, r)
	}
}

// drawAccess draws what the resource did: reads towards the client, writes towards the resource, a refused one up to a
// stop mark in front of it.
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
	class := "lq-label"
	switch r.Kind {
	case markRead:
		if r.Since != 0 {
			c.line("lq-msg lq-reply", from, y, to, r.Y)
		}
		c.arrow("lq-access", to, r.Y, from, r.Y)
	case markStale:
		class = "lq-label lq-red"
		c.arrow("lq-stale", from, y, to-side*4, r.Y)
	case markRefused:
		class = "lq-label lq-red"
		c.line("lq-refused", from, y, to-side*22, r.Y)
		c.stop(to-side*13, r.Y)
	default:
		c.arrow("lq-access", from, y, to-side*4, r.Y)
	}
	if r.Kind != markRefused {
		dot := "lq-dot" + hue(" lq-f", l.Lanes[r.Lane].Hue)
		if r.Kind == markStale {
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

// drawNote writes beside a lane: outside of the outer clients, else to the lane's right.
func drawNote(c *canvas, l *layout, r placed) {
	class := "lq-label lq-note"
	if r.Kind == markFault {
		class = "lq-label lq-fault"
	}
	x := l.X[r.Lane]
	lane := l.Lanes[r.Lane]
	if r.Kind == markNote && lane.Kind == laneClient {
		c.line("lq-end"+hue(" lq-s", lane.Hue), x-bandHalf-3, r.Y, x+bandHalf+3, r.Y)
	}
	if r.Lane == 0 {
		c.anchored(class, x-bandHalf-9, r.Y+4, "end", r.Label)
		return
	}
	c.anchored(class, x+bandHalf+9, r.Y+4, "start", r.Label)
}

// edge returns where an arrow leaves a hold's bar and where it meets the line of its far end.
func (l *layout) edge(lane, far int) (from, to float64) {
	if l.X[far] > l.X[lane] {
		return l.X[lane] + barHalf + 2, l.X[far] - 2
	}
	return l.X[lane] - barHalf - 2, l.X[far] + 2
}

// label writes into the corridor next to the client, on the side of the arrow; where the arrow is a slope, behind its
// far end.
func (l *layout) label(c *canvas, class string, r placed, y float64) {
	if r.Since != 0 {
		anchor, side := "start", 1.0
		if l.X[r.To] < l.X[r.Lane] {
			anchor, side = "end", -1
		}
		c.anchored(class, l.X[r.To]+side*(bandHalf+9), y+4, anchor, r.Label)
		return
	}
	if l.X[r.To] > l.X[r.Lane] {
		c.anchored(class, l.X[r.Lane]+(corridor+barHalf)/2, y, "middle", r.Label)
		return
	}
	c.anchored(class, l.X[r.Lane]-(corridor+barHalf)/2, y, "middle", r.Label)
}

// drawLegend explains the signs that this picture uses.
func drawLegend(c *canvas, l *layout) {
	x, y := 24.0, l.Bottom+34
	sign := func(words string, sign func(x float64)) {
		sign(x)
		c.text("lq-small", x+30, y+4, words)
		x += 30 + 6.4*float64(len(words)) + 20
	}
	box := func(class string) func(float64) {
		return func(x float64) { c.rect(class, x, y-6, 22, 12, 2) }
	}
	sign("holds, entitled", box("lq-solid lq-f0"))
	if l.anyPast() {
		sign("holds on after its validity", box("lq-hatch lq-h0"))
	}
	sign("waits", func(x float64) { c.line("lq-wait lq-s0", x, y, x+22, y) })
	if len(l.Bands) > 0 {
		sign("fault", box("lq-band"))
	}
	seen := map[markKind]bool{}
	for _, r := range l.Rows {
		seen[r.Kind] = true
	}
	if seen[markStale] {
		sign("stale write", func(x float64) { c.arrow("lq-stale", x, y, x+22, y) })
	}
	if seen[markRefused] {
		sign("refused", func(x float64) { c.stop(x+12, y) })
	}
	for i, n := range l.Notes {
		c.text("lq-small", 24, l.Bottom+62+18*float64(i), n)
	}
	c.anchored("lq-small lq-foot", l.W-24, l.Bottom+62+18*float64(len(l.Notes)), "end", l.Foot)
}

// anyPast tells whether a hold is drawn past its validity.
func (l *layout) anyPast() bool {
	return slices.ContainsFunc(l.Holds, func(h bar) bool { return h.Ref.End == 0 || h.Ref.Valid < h.Ref.End })
}
