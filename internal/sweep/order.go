package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results/capacity"
)

// schedule says how often each point is measured.
type schedule struct {
	points []Point
	repeat int
	left   []capacity.Left // what the budget does not allow
	why    string          // what was left out, for people; "": nothing
	takes  time.Duration   // estimate of the whole
}

// cost estimates how long things take.
type cost struct {
	point  func(Point) time.Duration // one run
	first  time.Duration             // until the first servers are ready
	search int                       // runs of one curve's open loop; 0: none is searched
}

// of returns the time of the points of some curves, and of the searches, each with the most users of its curve.
func (c cost) of(curves [][]Point, repeat int) (points, searches time.Duration) {
	points = c.first
	for _, curve := range curves {
		for _, p := range curve {
			points += time.Duration(p.runs(repeat)) * c.point(p)
		}
		searches += time.Duration(c.search) * c.point(curve[len(curve)-1])
	}
	return points, searches
}

// leastOfCurve is how many points a curve keeps while other curves can be left out: those that a fit needs, and one
// that may be marked.
const leastOfCurve = 6

// within fits a sweep into a budget. First it makes fewer runs of each point, down to one. Then each curve keeps
// fewer numbers of users, evenly from the least to the most. Then whole curves are left out, evenly; the last one may
// get shorter still. The searches count for at most half of the budget: they take what remains.
func within(points []Point, repeat int, budget time.Duration, c cost) (schedule, error) {
	all := byUsers(points)
	closed, searches := c.of(all, repeat)
	s := schedule{points: points, repeat: repeat, takes: closed + searches}
	if budget <= 0 || s.takes <= budget {
		return s, nil
	}
	whole := s.takes
	over := func(curves [][]Point) bool {
		closed, searches = c.of(curves, s.repeat)
		s.takes = min(closed+searches, budget)
		return closed+min(searches, budget/2) > budget
	}
	for s.repeat > 1 && over(all) {
		s.repeat--
	}
	longest := 0
	for _, curve := range all {
		longest = max(longest, len(curve))
	}
	left, n, most := all, len(all), longest
	for over(left) {
		smallest := closed + min(searches, closed)
		if most > leastOfCurve || n == 1 {
			most--
		} else {
			n, most = n-1, longest
		}
		left = nil
		for _, curve := range evenly(all, n) {
			left = append(left, evenly(curve, min(most, len(curve))))
		}
		if n == 1 && len(left[0]) < min(2, len(points)) {
			return s, engine.UsageError{Text: fmt.Sprintf("--budget: %v is too short for the smallest sweep, about %v; the whole takes about %v",
				budget, smallest.Round(time.Second), whole.Round(time.Second))}
		}
	}
	s.keep(slices.Concat(left...), fmt.Sprintf("the budget of %v", budget))
	var why []string
	if s.repeat < repeat {
		why = append(why, fmt.Sprintf("each point is run %s instead of %d", times(s.repeat), repeat))
	}
	if len(s.left) > 0 {
		why = append(why, fmt.Sprintf("%d of %d points are omitted", len(s.left), len(points)))
	}
	if n < len(all) {
		why = append(why, fmt.Sprintf("%d of %d curves with them", len(all)-n, len(all)))
	}
	if closed+searches > budget {
		why = append(why, fmt.Sprintf("the search of rates has about %v", (budget-closed).Round(time.Second)))
	}
	s.why = fmt.Sprintf("the sweep would take about %v, but the budget is %v: %s", whole.Round(time.Second), budget,
		strings.Join(why, ", and "))
	return s, nil
}

// keep drops all points except some.
func (s *schedule) keep(some []Point, why string) {
	kept := map[capacity.Setting]bool{}
	for _, p := range some {
		kept[p.Setting] = true
	}
	all := s.points
	s.points = nil
	for _, p := range all {
		if kept[p.Setting] {
			s.points = append(s.points, p)
		} else {
			s.left = append(s.left, capacity.Left{Setting: p.Setting, Why: why})
		}
	}
}

// lacking returns the runs that are not in a file yet, in their order.
func (s schedule) lacking(f capacity.Sweep) (out []Point) {
	made := map[capacity.Setting]int{}
	for _, p := range f.Points {
		made[p.Setting] += len(p.Samples)
	}
	for _, p := range rounds(s.points, s.repeat, f.Seed) {
		if made[p.Setting] > 0 {
			made[p.Setting]--
			continue
		}
		out = append(out, p)
	}
	return out
}

// byUsers groups the points that differ only in users, few users first.
func byUsers(points []Point) (out [][]Point) {
	at := map[capacity.Setting]int{}
	for _, p := range points {
		of := p.Setting
		of.Users = 0
		i, ok := at[of]
		if !ok {
			i, at[of] = len(out), len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], p)
	}
	for _, curve := range out {
		slices.SortStableFunc(curve, func(a, b Point) int { return a.Users - b.Users })
	}
	return out
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

// evenly picks n elements that are evenly spread.
func evenly[T any](all []T, n int) []T {
	var out []T
	for i := range n {
		at := 0
		if n > 1 {
			at = int(math.Round(float64(i) * float64(len(all)-1) / float64(n-1)))
		}
		out = append(out, all[at])
	}
	return out
}

// rounds returns the order of all runs. Each round runs every point once, in its own order, so that drift over time
// is not taken for a difference between points. Points that share servers stay together, because servers take long to
// start.
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
	for round := range repeat {
		random.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
		for _, b := range blocks {
			random.Shuffle(len(b), func(i, j int) { b[i], b[j] = b[j], b[i] })
			for _, p := range b {
				if round < p.runs(repeat) {
					out = append(out, p)
				}
			}
		}
	}
	return out
}
