package report

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Measures of a picture, in px.
const (
	axisX     = 84.0  // the time axis
	gutter    = 172.0 // for words outside of the outer clients
	corridor  = 206.0 // between two lanes
	rowGap    = 30.0  // least distance of two rows
	secondRow = 16.0  // more, under a row with a second line
	breakGap  = 58.0  // least distance across a break of the axis
	barHalf   = 8.0
	bandHalf  = 17.0
	charWidth = 6.9 // of the widest usual font at 12 px
)

// breakFrom is the time (ns) between two rows from which on the axis is broken.
const breakFrom = 100_000_000

// placed is a mark with its height.
type placed struct {
	mark
	Y    float64
	Tick string // label on the axis
}

// gap is a break of the axis.
type gap struct {
	Y     float64 // middle
	Label string
}

// layout is a story with every place settled. It is pure: the same story gives the same layout.
type layout struct {
	*story
	W, H   float64
	X      []float64 // by lane
	Rows   []placed
	Gaps   []gap
	Lines  []string // the text under the title
	Notes  []string
	Heads  float64 // y of the lanes' names
	Top    float64 // y of the first moment
	Bottom float64 // y of the end of the lanes
}

// place settles where everything is drawn. Every mark gets a row of its own, in the order of time, so that no two
// labels can meet; the distance of two rows grows with the logarithm of the time between them.
func place(s *story) *layout {
	l := &layout{story: s}
	x := axisX + gutter
	for i := range s.Lanes {
		l.X = append(l.X, x+float64(i)*corridor)
	}
	l.W = l.X[len(l.X)-1] + gutter
	l.Lines = wrap(s.Text, int((l.W-48)/charWidth))
	l.Heads = 62 + 18*float64(len(l.Lines)) + 14
	l.Top = l.Heads + 62
	l.rows()
	l.Bottom = l.Top + 30
	if n := len(l.Rows); n > 0 {
		l.Bottom = l.Rows[n-1].Y + 30
		if l.Rows[n-1].Below != "" {
			l.Bottom += secondRow
		}
	}
	l.notes()
	l.H = l.Bottom + 64 + 18*float64(len(l.Notes)) + 14
	return l
}

func (l *layout) rows() {
	ticks := tickLabels(l.Marks, l.Start)
	y := l.Top
	for i, m := range l.Marks {
		if i > 0 {
			prev := l.Marks[i-1]
			dt := m.Time - prev.Time
			d := rowGap + 7*math.Log10(1+float64(dt)/1e6)
			if prev.Below != "" {
				d += secondRow
			}
			if dt >= breakFrom {
				d = max(d, breakGap)
				l.Gaps = append(l.Gaps, gap{Y: y + d/2, Label: duration(dt)})
			}
			y += d
		}
		l.Rows = append(l.Rows, placed{mark: m, Y: y, Tick: ticks[i]})
	}
	for i := 1; i < len(l.Rows); i++ {
		if l.Rows[i].Time == l.Rows[i-1].Time {
			l.Rows[i].Tick = "" // the same moment: said once
		}
	}
}

func (l *layout) notes() {
	l.Notes = append(l.Notes, "Every figure on the axis is ms since the load began, from one monotonic clock. Distances are not to scale; long stretches are cut.")
	if l.Others > 0 {
		n := strconv.Itoa(l.Others) + " more grants of this lock"
		if l.Others == 1 {
			n = "1 more grant of this lock"
		}
		l.Notes = append(l.Notes, n+" to other users lie in this time and are not drawn.")
	}
	if l.Skipped > 0 {
		l.Notes = append(l.Notes, strconv.Itoa(l.Skipped)+" more accesses of these holds are not drawn.")
	}
}

// at returns the height of a time: of its row where it has one, else between the rows around it.
func (l *layout) at(t int64) float64 {
	if len(l.Rows) == 0 || t == 0 {
		return l.Bottom
	}
	i, found := slices.BinarySearchFunc(l.Rows, t, func(p placed, t int64) int { return cmp.Compare(p.Time, t) })
	switch {
	case found:
		return l.Rows[i].Y
	case i == 0:
		return l.Top - 14
	case i == len(l.Rows):
		return l.Bottom
	}
	a, b := l.Rows[i-1], l.Rows[i]
	return a.Y + (b.Y-a.Y)*float64(t-a.Time)/float64(b.Time-a.Time)
}

// tickLabels writes the times in ms since start, with as many decimals as it takes to tell them apart, at most three.
func tickLabels(ms []mark, start int64) []string {
	out := make([]string, len(ms))
	for decimals := 0; decimals <= 3; decimals++ {
		same := false
		for i, m := range ms {
			out[i] = strconv.FormatFloat(float64(m.Time-start)/1e6, 'f', decimals, 64)
			same = same || i > 0 && out[i] == out[i-1] && m.Time != ms[i-1].Time
		}
		if !same {
			break
		}
	}
	return out
}

// wrap breaks a text into lines of at most width characters, at spaces.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
