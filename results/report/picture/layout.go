package picture

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/story"
)

// Measures of a picture, in px. It fits the width of a page of text.
const (
	axisX     = 68.0  // the time axis
	firstX    = 142.0 // the first lane
	margin    = 62.0  // right of the last lane
	leastW    = 760.0
	rowGap    = 27.0 // minimum distance of two rows
	secondRow = 16.0 // more, under a row with a second line
	breakGap  = 44.0 // minimum distance across a break of the axis
	barHalf   = 7.0
	bandHalf  = 15.0
	groupHalf = 40.0 // from the outer servers to the edge of the lock service
	charWidth = 6.9  // of the widest common font at 12 px

	titleWidth = 10.2 // of a character of the title
)

// breakFrom is the minimum time (ns) between two rows that breaks the axis.
const breakFrom = 100_000_000

// placed is a mark with its height.
type placed struct {
	story.Mark
	Y    float64
	Tick string // label on the axis
}

// gap is a break of the axis.
type gap struct {
	Y     float64 // middle
	Label string
}

// layout is a story with the coordinates of everything. It is pure: the same story gives the same layout.
type layout struct {
	story  *story.Story
	W, H   float64
	X      []float64 // by lane
	Rows   []placed
	Gaps   []gap
	Titles []string
	Lines  []string // the text under the title
	Notes  []string
	Heads  float64 // y of the lanes' names
	Top    float64 // y of the first moment
	Bottom float64 // y of the end of the lanes
}

// place computes all coordinates. Every mark gets its own row, in the order of time, so that no two labels can
// overlap. The distance of two rows grows with the logarithm of the time between them.
func place(s *story.Story) *layout {
	l := &layout{story: s}
	l.columns()
	l.Titles = figure.Wrap(s.Title, int((l.W-48)/titleWidth))
	text := s.Text
	if s.InAll != "" {
		text = strings.TrimPrefix(strings.TrimSuffix(text, ".")+". In all: "+s.InAll+".", ". ")
	}
	l.Lines = figure.Wrap(text, int((l.W-48)/6.8))
	l.Heads = 36 + 24*float64(len(l.Titles)) + 18*float64(len(l.Lines)) + 14
	if _, _, ok := l.group(); ok {
		l.Heads += 18
	}
	l.Top = l.Heads + 60
	l.rows()
	l.Bottom = l.Top + 30
	if n := len(l.Rows); n > 0 {
		l.Bottom = l.Rows[n-1].Y + 30
		if l.Rows[n-1].Below != "" {
			l.Bottom += secondRow
		}
	}
	l.notes()
	l.H = l.Bottom + 74 + 16*float64(len(l.Notes))
	return l
}

// cut formats the time that a break leaves out, in whole milliseconds or with two decimals.
func cut(ns int64) string {
	if ns < 1_000_000_000 {
		return strconv.FormatInt(ns/1_000_000, 10) + " ms"
	}
	return strconv.FormatFloat(float64(ns)/1e9, 'f', 2, 64) + " s"
}

// columns places the lanes: servers are close together, and the rest of the minimum width widens all gaps equally.
func (l *layout) columns() {
	nodes := 0
	for _, lane := range l.story.Lanes {
		if lane.Kind == story.LaneNode {
			nodes++
		}
	}
	gaps := make([]float64, len(l.story.Lanes))
	total := firstX + margin
	for i := 1; i < len(l.story.Lanes); i++ {
		a, b := l.story.Lanes[i-1].Kind, l.story.Lanes[i].Kind
		switch {
		case a == story.LaneNode && b == story.LaneNode && nodes > 3:
			gaps[i] = 74
		case a == story.LaneNode && b == story.LaneNode:
			gaps[i] = 96
		case a == story.LaneNode || b == story.LaneNode:
			gaps[i] = 112
		default:
			gaps[i] = 118
		}
		total += gaps[i]
	}
	if wider := leastW - total; wider > 0 && len(gaps) > 1 {
		for i := 1; i < len(gaps); i++ {
			gaps[i] += wider / float64(len(gaps)-1)
		}
		total = leastW
	}
	l.W = math.Ceil(total)
	x := firstX
	for i := range l.story.Lanes {
		x += gaps[i]
		l.X = append(l.X, math.Round(x))
	}
}

// group returns the edges of the lock service; ok is false if it is one lane.
func (l *layout) group() (from, to float64, ok bool) {
	for i, lane := range l.story.Lanes {
		if lane.Kind != story.LaneNode {
			continue
		}
		if !ok {
			from = l.X[i] - groupHalf
		}
		to, ok = l.X[i]+groupHalf, true
	}
	return from, to, ok
}

// far returns where an arrow from a lane ends: at another lane, or at the edge of the lock service.
func (l *layout) far(lane, to int) float64 {
	if to >= 0 {
		return l.X[to]
	}
	if from, until, ok := l.group(); ok {
		if l.X[lane] < from {
			return from
		}
		return until
	}
	return l.X[lane] + groupHalf
}

func (l *layout) rows() {
	ticks := tickLabels(l.story.Marks, l.story.Start)
	y := l.Top
	for i, m := range l.story.Marks {
		if i > 0 {
			prev := l.story.Marks[i-1]
			dt := m.Time - prev.Time
			d := rowGap + 4*math.Log10(1+float64(dt)/1e6)
			if prev.Below != "" {
				d += secondRow
			}
			if dt >= breakFrom {
				d = max(d, breakGap)
				l.Gaps = append(l.Gaps, gap{Y: y + d/2, Label: cut(dt)})
			}
			y += d
		}
		l.Rows = append(l.Rows, placed{Mark: m, Y: y, Tick: ticks[i]})
	}
	for i := 1; i < len(l.Rows); i++ {
		if l.Rows[i].Time == l.Rows[i-1].Time {
			l.Rows[i].Tick = "" // the same moment: shown once
		}
	}
}

func (l *layout) notes() {
	text := "The axis is in ms since the load began, by one monotonic clock. Distances are not to scale; long stretches are cut."
	if l.story.Others > 0 {
		n := strconv.Itoa(l.story.Others) + " more grants of this lock"
		if l.story.Others == 1 {
			n = "1 more grant of this lock"
		}
		text += " " + n + " to other users lie in this time and are not drawn."
	}
	if l.story.Skipped > 0 {
		text += " " + strconv.Itoa(l.story.Skipped) + " more accesses of these holds are not drawn."
	}
	l.Notes = figure.Wrap(text, int((l.W-48)/5.7))
}

// at returns the height of a time: that of its row, else one between the rows around it.
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

// tickLabels formats the times in ms since start, with as many decimals as needed to distinguish them, at most three.
func tickLabels(ms []story.Mark, start int64) []string {
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
