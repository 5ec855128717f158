package sweep

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/results/capacity"
)

// searches looks on each curve for the highest rate that meets the objective, with the most users of the curve.
type searches struct {
	sweep *Sweep
	left  []Point       // the points that they begin at; the first is under way
	begun bool          // the first has begun
	end   time.Duration // deadline, counted from the start of the sweep; 0: none
}

// next returns the next run that a search asks for.
func (x *searches) next() (j campaign.Job, ok bool) {
	for ; len(x.left) > 0; x.left, x.begun = x.left[1:], false {
		if !x.begun {
			x.begun, x.end = true, x.share()
			x.sweep.pace.is(func(p *pace) { p.all = p.done + searchRuns*len(x.left) })
		}
		if at, ok, err := x.point(); ok {
			j = x.sweep.job(at)
			j.Cannot = errors.Join(j.Cannot, err)
			return j, true
		}
	}
	return j, false
}

// share returns the deadline of the next curve's search, counted from the start of the sweep; 0 is none. The
// remaining budget is shared by all curves that were not searched yet: the first does not take the time of the last.
func (x *searches) share() time.Duration {
	s := x.sweep
	if s.Budget <= 0 {
		return 0
	}
	took := time.Duration(clock.Now() - s.began)
	return took + max(0, s.Budget-took)/time.Duration(len(x.left))
}

// point returns the point that the search under way asks for. ok is false if the search is done or has no more time.
func (x *searches) point() (at Point, ok bool, err error) {
	s, from := x.sweep, x.left[0]
	search := capacity.Search{
		Objective: *s.File.Objective, Start: peak(curve(s.File.Points, from.curve())),
		Confirm: s.File.Confirm, Measured: s.File.Measured,
	}
	rate, done := search.Next(curve(s.File.Points, from.curve()))
	if done {
		return at, false, nil
	}
	if at, err = from.at(rate); err != nil {
		return from, true, fmt.Errorf("search at %.4g/s: %w", rate, err)
	}
	at.Rate = rate
	if why := s.mustEnd(x.end); why != "" {
		s.leave([]Point{at}, why)
		return at, false, nil
	}
	s.pace.is(func(p *pace) { p.all = max(p.all, p.done+1) })
	return at, true, nil
}

// checkSearch returns why the open loop of a curve cannot be run.
func (s *Sweep) checkSearch() error {
	for _, p := range s.largest() {
		if _, err := p.at(1); err != nil {
			return err
		}
	}
	return nil
}

// largest returns the points at which the searches begin; none if there is no objective, or if rates are given.
func (s *Sweep) largest() []Point {
	if !s.File.Searches() {
		return nil
	}
	return largest(s.plan.points)
}

// largest returns the point with the most users of each curve.
func largest(points []Point) (out []Point) {
	most := map[capacity.Setting]Point{}
	var curves []capacity.Setting
	for _, p := range points {
		c := p.curve()
		if had, ok := most[c]; !ok || p.Users > had.Users {
			if !ok {
				curves = append(curves, c)
			}
			most[c] = p
		}
	}
	for _, c := range curves {
		out = append(out, most[c])
	}
	return out
}

// curve returns the points that differ from a setting only in users and rate.
func curve(points []capacity.Point, of capacity.Setting) []capacity.Point {
	return slices.DeleteFunc(slices.Clone(points), func(p capacity.Point) bool {
		p.Users, p.Rate = 0, 0
		return p.Setting != of
	})
}

// peak returns the most cycles a second of a curve's closed loop, averaged over the samples of a point.
func peak(curve []capacity.Point) float64 {
	best := 0.0
	for _, p := range curve {
		sum, n := 0.0, 0.0
		for _, one := range p.Samples {
			if one.Spoilt == "" && p.Rate == 0 {
				sum, n = sum+one.Cycles, n+1
			}
		}
		best = max(best, sum/max(n, 1))
	}
	return best
}
