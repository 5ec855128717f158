package report

import "slices"

// drawRow draws one mark.
func drawRow(c *canvas, l *layout, r placed) {
	switch r.Kind {
	case markNote, markFault, markSeen, markSent:
		drawNote(c, l, r)
	case markRegion:
		class := "lq-pill-overlap"
		if l.isPillDouble(r) {
			class = "lq-pill-double"
		}
		half := pillWidth(r.Label)/2 + 8
		c.pill(class, min(max((l.X[r.Lane]+l.X[r.To])/2, half), l.W-half), r.Y, r.Label)
	case markAsk, markAnswer, markExchange:
		drawMessage(c, l, r)
	default:
		drawAccess(c, l, r)
	}
}

func (l *layout) isPillDouble(r placed) bool {
	return slices.ContainsFunc(l.Regions, func(g region) bool { return g.Double && g.From == r.Time && g.A == r.Lane && g.B == r.To })
}

// drawMessage draws what a client and the lock service said to each other, and at which servers a grant was seen.
func drawMessage(c *canvas, l *layout, r placed) {
	from, to := l.edge(r.Lane, r.To)
	y := r.Y
	switch r.Kind {
	case markAsk:
		c.arrow("lq-msg", from, y, to, y+6)
	case markAnswer:
		c.arrow("lq-msg lq-reply", to, y-6, from, y)
		y -= 5
	default:
		c.arrow("lq-msg", from, y-3, to, y-3)
		c.arrow("lq-msg lq-reply", to, y+3, from, y+3)
		y -= 2
	}
	for _, n := range r.At {
		c.circle("lq-dot"+hue(" lq-f", l.Lanes[r.Lane].Hue), l.X[n], r.Y, 4.5)
	}
	class := ""
	if r.Bad {
		class += " lq-bad"
	}
	l.label(c, class, r, y-6)
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
	class := ""
	switch r.Kind {
	case markRead:
		if r.Since != 0 {
			c.line("lq-msg lq-reply", from, y, to, r.Y)
		}
		c.arrow("lq-access", to, r.Y, from, r.Y)
	case markStale:
		class = " lq-red"
		c.arrow("lq-stale", from, y, to-side*4, r.Y)
	case markRefused:
		class = " lq-red"
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

// drawNote writes beside a lane: to its right, and where there is no room, to its left.
func drawNote(c *canvas, l *layout, r placed) {
	class := " lq-note"
	switch r.Kind {
	case markFault:
		class = " lq-fault"
	case markSeen:
		class = " lq-seen"
	}
	x := l.X[r.Lane]
	if lane := l.Lanes[r.Lane]; r.Kind == markNote && lane.Kind == laneClient {
		c.line("lq-end"+hue(" lq-s", lane.Hue), x-bandHalf-3, r.Y, x+bandHalf+3, r.Y)
	}
	if r.Kind == markSeen {
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

// label writes next to the client, on the side of the arrow; where the arrow is a slope, behind its far end.
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

// drawLegend explains the signs that this picture uses.
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
	if len(l.Holds) > 0 {
		sign("holds, entitled", box("lq-solid lq-f0"))
	}
	if l.anyPast() {
		sign("holds on past its validity", box("lq-hatch lq-h0"))
	}
	if len(l.Bands) > 0 {
		sign("fault", box("lq-band"))
	}
	if len(l.Serves) > 0 {
		sign("takes writes", func(x float64) { c.rect("lq-serves", x, y-3, 22, 6, 2) })
	}
	seen := map[markKind]bool{}
	at := false
	for _, r := range l.Rows {
		seen[r.Kind] = true
		at = at || len(r.At) > 0
	}
	if at {
		sign("has the key", func(x float64) { c.circle("lq-dot lq-f0", x+11, y, 4.5) })
	}
	if seen[markStale] {
		sign("stale write", func(x float64) { c.arrow("lq-stale", x, y, x+22, y) })
	}
	if seen[markRefused] {
		sign("refused", func(x float64) { c.stop(x+12, y) })
	}
	for i, n := range l.Notes {
		c.text("lq-small", 24, y+24+16*float64(i), n)
	}
	c.anchored("lq-small lq-foot", l.W-24, y+24+16*float64(len(l.Notes)), "end", l.Foot)
}

// anyPast tells whether a hold is drawn past its validity.
func (l *layout) anyPast() bool {
	return slices.ContainsFunc(l.Holds, func(h bar) bool { return h.Ref.End == 0 || h.Ref.Valid < h.Ref.End })
}
