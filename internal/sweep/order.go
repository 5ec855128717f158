package sweep

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results/capacity"
)

// schedule is which points are measured how often.
type schedule struct {
	points []Point
	repeat int
	left   []capacity.Left // what the budget does not allow
	why    string          // what was left out, for people; "": nothing
	takes  time.Duration   // about, in all
}

// cost is about how long things take.
type cost struct {
	point  func(Point) time.Duration // one run
	first  time.Duration             // until the first servers serve
	search time.Duration             // of one curve's open loop; 0: none is searched
}

func (c cost) of(points []Point, repeat int) time.Duration {
	sum, curves := c.first, map[capacity.Setting]bool{}
	for _, p := range points {
		sum += time.Duration(repeat) * c.point(p)
		curves[p.curve()] = true
	}
	return sum + time.Duration(len(curves))*c.search
}

// within fits a sweep into a budget. First it makes fewer runs of each point, down to one; then it leaves out points, evenly, and keeps the
// first and the last.
func within(points []Point, repeat int, budget time.Duration, c cost) (schedule, error) {
	s := schedule{points: points, repeat: repeat, takes: c.of(points, repeat)}
	if budget <= 0 || s.takes <= budget {
		return s, nil
	}
	whole := s.takes
	for s.repeat > 1 && s.takes > budget {
		s.repeat--
		s.takes = c.of(points, s.repeat)
	}
	n := len(points)
	for n > 0 && s.takes > budget {
		n--
		s.points = evenly(points, n)
		s.takes = c.of(s.points, s.repeat)
	}
	if n < min(2, len(points)) {
		return s, engine.UsageError{Text: fmt.Sprintf("--budget: %v is not enough for the smallest sweep, which takes about %v; the whole takes about %v",
			budget, c.of(evenly(points, min(2, len(points))), 1).Round(time.Second), whole.Round(time.Second))}
	}
	s.why = fmt.Sprintf("the sweep would take about %v, and the budget is %v: ", whole.Round(time.Second), budget)
	if s.repeat < repeat {
		s.why += fmt.Sprintf("each point is run %s instead of %d", times(s.repeat), repeat)
	}
	if n < len(points) {
		if s.repeat < repeat {
			s.why += ", and "
		}
		s.why += fmt.Sprintf("%d of %d points are left out", len(points)-n, len(points))
	}
	for _, p := range points {
		if !slices.ContainsFunc(s.points, func(o Point) bool { return o.Setting == p.Setting }) {
			s.left = append(s.left, capacity.Left{Setting: p.Setting, Why: fmt.Sprintf("the budget of %v", budget)})
		}
	}
	return s, nil
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// evenly picks n points that lie evenly among all.
func evenly(points []Point, n int) []Point {
	var out []Point
	for i := range n {
		at := 0
		if n > 1 {
			at = int(math.Round(float64(i) * float64(len(points)-1) / float64(n-1)))
		}
		out = append(out, points[at])
	}
	return out
}

// rounds is the order of all runs. Each round runs every point once, in an order of its own, so that what changes with time is no
// part of the difference between points. Points that share servers stay together, for servers take long to start.
func rounds(points []Point, repeat int, from uint64) []Point {
	random := seed.Rand(from, "order of the sweep")
	var blocks [][]Point
	for _, p := range points {
		at := slices.IndexFunc(blocks, func(b []Point) bool { return b[0].block == p.block })
		if at < 0 {
			blocks = append(blocks, []Point{p})
		} else {
			blocks[at] = append(blocks[at], p)
		}
	}
	var out []Point
	for range repeat {
		random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		for _, b := range blocks {
			random.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
			out = append(out, b...)
		}
	}
	return out
}
