package sweep

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/results/capacity"
)

// searchAll looks on each curve for the highest rate that keeps the objective, with as many users as the curve has at most.
func (s *Sweep) searchAll(ctx context.Context) error {
	list := s.largest()
	for i, p := range list {
		s.pace.is(func(p *pace) { p.all = p.done + searchRuns*(len(list)-i) })
		if err := s.searchOne(ctx, p, s.share(len(list)-i)); err != nil {
			return err
		}
	}
	return nil
}

// share is when the search of the next curve must end, after the sweep began; 0: whenever. What remains of the budget is for all curves that
// were not searched yet: the first does not take the time of the last.
func (s *Sweep) share(curves int) time.Duration {
	if s.Budget <= 0 {
		return 0
	}
	took := time.Duration(clock.Now() - s.began)
	return took + max(0, s.Budget-took)/time.Duration(curves)
}

// checkSearch says why the open loop of a curve could not be run.
func (s *Sweep) checkSearch() error {
	for _, p := range s.largest() {
		if _, err := p.at(1); err != nil {
			return err
		}
	}
	return nil
}

// largest are the points from which the searches begin; none where no objective is asked for, or rates are.
func (s *Sweep) largest() []Point {
	if !s.File.Searches() {
		return nil
	}
	return largest(s.plan.points)
}

// largest is the point with the most users of each curve.
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

func (s *Sweep) searchOne(ctx context.Context, p Point, end time.Duration) error {
	search := capacity.Search{Objective: *s.File.Objective, Start: peak(s.curve(p.curve())), Confirm: s.File.Confirm, Measured: s.File.Measured}
	for {
		rate, done := search.Next(s.curve(p.curve()))
		if done {
			return nil
		}
		at, err := p.at(rate)
		if err != nil {
			return fmt.Errorf("search at %.4g/s: %w", rate, err)
		}
		at.Rate = rate
		if why := s.mustEnd(ctx, end); why != "" {
			s.leave([]Point{at}, why)
			return nil
		}
		s.pace.is(func(p *pace) { p.all = max(p.all, p.done+1) })
		if err := s.measure(ctx, at); err != nil {
			return err
		}
	}
}

// curve are the points that differ from a setting in users and rate alone.
func (s *Sweep) curve(of capacity.Setting) []capacity.Point {
	return slices.DeleteFunc(slices.Clone(s.File.Points), func(p capacity.Point) bool {
		p.Users, p.Rate = 0, 0
		return p.Setting != of
	})
}

// peak is the most cycles a second of a curve's closed loop, on average over the samples of a point.
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
