package sweep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
)

// Point is a scenario to measure, with its setting.
type Point struct {
	capacity.Setting
	Scenario scenarios.Scenario
	block    string // the settings of its servers: points of one block share them
	pick     []Choice
	base     engine.Options
	busy     bool // a closed loop without think time
	once     bool // one run is enough
}

// runs returns how many runs of the point are made if each point gets repeat.
func (p Point) runs(repeat int) int {
	if p.once {
		return min(repeat, 1)
	}
	return repeat
}

// Points makes all combinations of the axes and checks that each can be run here. Nothing is started.
func Points(base engine.Options, axes []Axis) ([]Point, error) {
	combinations := [][]Choice{nil}
	if err := apart(axes); err != nil {
		return nil, err
	}
	for _, a := range axes {
		var next [][]Choice
		for _, c := range combinations {
			for _, choice := range a.Choices {
				next = append(next, append(slices.Clone(c), choice))
			}
		}
		if combinations = next; len(combinations) > capacity.MostPoints {
			return nil, engine.UsageError{Text: fmt.Sprintf("the sweep has more than %d points; use fewer values",
				capacity.MostPoints)}
		}
	}
	var out []Point
	for _, pick := range combinations {
		p, err := newPoint(base, pick)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// apart rejects two axes that set the same key: one would undo the other.
func apart(axes []Axis) error {
	axisOf := map[string]int{}
	for i, a := range axes {
		for _, c := range a.Choices {
			for _, set := range c.Set {
				key, _, _ := strings.Cut(set, "=")
				if was, ok := axisOf[key]; ok && was != i {
					return engine.UsageError{Text: fmt.Sprintf("--%s and --%s both set %s; omit one of them",
						axes[was].Name, a.Name, key)}
				}
				axisOf[key] = i
			}
		}
	}
	return nil
}

func newPoint(base engine.Options, pick []Choice) (Point, error) {
	p := Point{pick: pick, base: base, block: base.Scenario.Backend.Use + " "}
	var set []string
	for _, c := range pick {
		set = append(set, c.Set...)
		p.once = p.once || c.Once
		if c.Server {
			p.block += strings.Join(c.Set, " ") + " "
		}
	}
	var err error
	if p.Scenario, err = base.Scenario.With(set); err != nil {
		return p, err
	}
	o := base
	o.Scenario = p.Scenario
	plan, err := engine.Check(o)
	if err != nil {
		return p, err
	}
	found := plan.Facts()
	if found.Workload == nil {
		return p, engine.UsageError{Text: fmt.Sprintf("%s has only steps and no workload: there is no load to sweep",
			p.Scenario.Name)}
	}
	w := p.Scenario.Workload
	p.Setting = capacity.Setting{
		Backend: p.Scenario.Backend.Use, Lock: found.Lock.Name, Nodes: found.Servers, Users: w.Clients * w.Users,
		Locks: found.Locks,
		TTL:   int64(p.Scenario.Backend.TTL),
	}
	if a, ok := found.Workload.(*workloads.AcquireRelease); ok {
		p.Hold, p.Rate, p.busy = int64(a.Hold), a.Rate, a.Rate == 0 && a.Think == 0
		if a.OwnLocks {
			p.Own, p.Locks = true, 1
		}
	}
	if !found.Lock.Offers.Blocking && !found.Lock.Absent {
		p.Retry = defaultPolicy
	}
	for _, c := range pick {
		if c.Note != nil {
			c.Note(&p.Setting)
		}
	}
	return p, nil
}

// at returns the same point as an open loop of that rate.
func (p Point) at(rate float64) (Point, error) {
	return newPoint(p.base, append(slices.Clone(p.pick),
		Choice{Set: []string{fmt.Sprintf("workload.rate=%.10g", rate)}}))
}

// curve returns the setting shared by all points that differ only in users and rate.
func (p Point) curve() capacity.Setting {
	s := p.Setting
	s.Users, s.Rate = 0, 0
	return s
}

// Name returns for people the settings that distinguish a point.
func Name(s capacity.Setting) string {
	text := fmt.Sprintf("%s, %s", figure.Of(s.Users, "user"), figure.Of(s.Locks, "lock"))
	if s.Own {
		text = figure.Of(s.Users, "user") + ", a lock each"
	}
	if s.Rate > 0 {
		text += fmt.Sprintf(", %.4g/s", s.Rate)
	}
	if s.RTT > 0 {
		text += fmt.Sprintf(", RTT %gms", float64(s.RTT)/1e6)
	}
	for _, more := range []string{s.Retry, s.Set} {
		if more != "" {
			text += ", " + more
		}
	}
	return text
}
