package compare

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/figure"
)

// Sweep is a sweep of capacity and its location.
type Sweep struct {
	Dir string
	capacity.Sweep
}

// SweepFigures lists the measures and counts compared per sweep point, as if one checker had reported them. The
// counts are those of all checkers; samples carry only the counts that must be zero.
func SweepFigures(all results.Checkers) results.Checkers {
	k := results.CheckerKind{Name: "capacity", Measures: SweepMeasures()}
	for _, c := range all {
		k.Counts = append(k.Counts, c.Counts...)
	}
	return results.Checkers{k}
}

// SweepMeasures returns the measures of SweepFigures.
func SweepMeasures() []results.Quantity {
	out := []results.Quantity{{Name: "throughput_per_s", Doc: "cycles per second", MoreIsBetter: true}}
	for _, q := range latencies {
		out = append(out, results.Quantity{Name: "acquire_" + q + "_ms", Doc: q + " of the acquire latency"})
	}
	return out
}

// latencies are the names of the latencies that a sample may have.
var latencies = append(slices.Clone(capacity.Quantiles), "max")

// figures returns a sample's figures under the names of SweepFigures. Measurements of a spoilt sample are left out;
// its counts are compared all the same, like those of a run.
func figures(s capacity.Sample) map[string]float64 {
	out := map[string]float64{}
	for name, n := range s.Counts {
		out[name] = float64(n)
	}
	if s.Spoilt != "" {
		return out
	}
	out["throughput_per_s"] = s.Cycles
	for _, q := range latencies {
		if ms, ok := s.Latency[q]; ok {
			out["acquire_"+q+"_ms"] = ms
		}
	}
	return out
}

// SweepResult is a comparison of sweeps.
type SweepResult struct {
	Sides
	Swept [2]string `json:"swept"` // what each group swept, in words
	// Alpha is the level of each point. Of many tested points one differs by chance alone, so the Alpha of one test
	// is divided by the number of points that both groups have (Bonferroni).
	Alpha  float64      `json:"alpha"`
	Curves []SweepCurve `json:"curves"`
	// Alone are the closed loops that only one group has, in words.
	Alone []string `json:"alone,omitempty"`

	analyses [2]capacity.Analysis
	known    results.Checkers
}

// SweepCurve has the points of a curve that both groups have.
type SweepCurve struct {
	Name    string           `json:"name"`
	Setting capacity.Setting `json:"setting"` // A's setting without users and rate
	Points  []SweepPoint     `json:"points"`
	A       Whole            `json:"a"`
	B       *Whole           `json:"b,omitempty"`
}

// SweepPoint is a point of both groups.
type SweepPoint struct {
	Users   int      `json:"users"`
	Rate    float64  `json:"rate,omitempty"`
	Figures []Figure `json:"figures"`
	// Marks are the reasons why a group does not fit the point. Wrong is why its figures say nothing; "": they do. A
	// point that the load generator limits is compared all the same: the client is part of the lock, and of both
	// groups.
	Marks []string `json:"marks,omitempty"`
	Wrong string   `json:"wrong,omitempty"`
}

// Whole is a group's summary of a whole curve.
type Whole struct {
	// the maximum of the closed loop; nil: no usable measurement
	Best      *capacity.Interval `json:"best_cycles_per_s"`
	BestUsers int                `json:"best_users,omitempty"`
	// a lower bound: more users would do more, or the load generator was the limit
	AtLeast bool   `json:"best_is_at_least,omitempty"`
	Limit   string `json:"limit"` // of that point
	// Knee and Peak are the users at which the curve bends, and at which it is highest, with their ranges, in words.
	Knee      string  `json:"knee"`
	Peak      string  `json:"peak"`
	Kept      float64 `json:"kept_per_s"` // the highest rate that keeps the objective; 0: unknown
	Confirmed bool    `json:"kept_confirmed"`
	Why       string  `json:"kept_why,omitempty"` // it is not confirmed
}

// whole summarises a curve.
func whole(c capacity.Curve) Whole {
	w := Whole{Limit: string(capacity.Unknown), Kept: c.Kept.Rate, Confirmed: c.Kept.Confirmed, Why: c.Kept.Why}
	w.Knee, w.Peak = c.Bends()
	if best := c.Peak(); best != nil {
		w.Best, w.BestUsers, w.Limit, w.AtLeast = &best.Cycles, best.Users, string(best.Limit.Cause), c.AtLeast(*best)
	}
	return w
}

// OfSweeps compares two groups of sweeps by SweepFigures; b may be empty. The sweeps of a group are merged, with the
// samples of all.
func OfSweeps(a, b []Sweep, known results.Checkers, allow Allow) (*SweepResult, error) {
	if len(a) == 0 {
		return nil, errors.New("there is no sweep to compare")
	}
	out := &SweepResult{known: known}
	var dirs [2][]string
	var versions [2][]map[string]string
	var subjects []subject
	for i, sweeps := range [][]Sweep{a, b} {
		if len(sweeps) == 0 {
			continue
		}
		var files []capacity.Sweep
		for _, s := range sweeps {
			files, dirs[i] = append(files, s.Sweep), append(dirs[i], s.Dir)
			v := map[string]string{"lockquake": s.Version}
			maps.Copy(v, s.Service)
			versions[i] = append(versions[i], v)
		}
		merged, err := capacity.Merge(files...)
		if err != nil {
			return nil, fmt.Errorf("group %c: %w", group(i), err)
		}
		out.analyses[i] = capacity.Analyse(merged)
		subjects = append(subjects, subjectOf(sweeps, merged))
		out.Swept[i] = fmt.Sprintf("%s (%s, provider %s)", merged.Scenario, subjects[i].settings["lock"],
			merged.Provider)
	}
	if err := refuse(subjects, allow); err != nil {
		return nil, err
	}
	out.Sides = Sides{
		A: dirs[0], B: dirs[1], Differs: differing(versions[0], versions[1]),
		Settings: differing(settingsOf(subjects[:1]), settingsOf(subjects[1:])), Answers: []Answer{},
	}
	return out, out.pair(allow)
}

// subjectOf treats a group of sweeps as one subject.
func subjectOf(sweeps []Sweep, merged capacity.Sweep) subject {
	s := subject{name: sweeps[0].Dir, machine: machineOf(merged.Host)}
	if n := len(sweeps) - 1; n > 0 {
		s.name += fmt.Sprintf(" (and %d more)", n)
	}
	var texts, backends, locks []string
	for _, one := range sweeps {
		texts = append(texts, one.ScenarioText)
	}
	for _, p := range merged.Points {
		backends, locks = append(backends, p.Backend), append(locks, strings.TrimSpace(p.Backend+" "+p.Lock))
	}
	all := func(values []string) string {
		slices.Sort(values)
		return strings.Join(slices.Compact(values), " and ")
	}
	s.settings = map[string]string{
		"provider": merged.Provider, "backend": all(backends), "lock": all(locks), "scenario": merged.Scenario,
		"text of the scenario": all(texts),
		"measured time":        time.Duration(merged.Measured).String(), "warm-up": time.Duration(merged.Warm).String(),
		"objective": "none",
	}
	if o := merged.Objective; o != nil {
		s.settings["objective"] = o.String()
	}
	return s
}

// pair finds the curves and points that both groups have, and compares them.
func (r *SweepResult) pair(allow Allow) error {
	two := len(r.B) > 0
	ca, cb := r.analyses[0].Curves, r.analyses[1].Curves
	same := telling(ca, cb, two && allow.Settings)
	type pairing struct{ a, b capacity.Curve }
	var pairs []pairing
	points := 0
	for _, a := range ca {
		i := slices.IndexFunc(cb, func(b capacity.Curve) bool { return same(b.Setting) == same(a.Setting) })
		switch {
		case !two:
			pairs = append(pairs, pairing{a: a})
		case i < 0:
			r.Alone = append(r.Alone, "only in A: "+a.Name())
		default:
			pairs = append(pairs, pairing{a, cb[i]})
			for _, x := range slices.Concat(a.Closed, a.Open) {
				if _, ok := twin(cb[i], x); ok {
					points++
				}
			}
		}
	}
	for _, b := range cb {
		if !slices.ContainsFunc(ca, func(a capacity.Curve) bool { return same(a.Setting) == same(b.Setting) }) {
			r.Alone = append(r.Alone, "only in B: "+b.Name())
		}
	}
	if two && points == 0 {
		if len(r.Alone) == 0 {
			return errors.New("the groups have no point in common: their users or rates differ on each curve")
		}
		return fmt.Errorf("the groups have no point in common: %s; %s; --allow settings compares groups whose differing settings have one value each", r.Alone[0], r.Alone[len(r.Alone)-1])
	}
	r.Alpha = Alpha / float64(max(points, 1))
	for _, p := range pairs {
		c := SweepCurve{Name: p.a.Name(), Setting: p.a.Setting, A: whole(p.a)}
		if two {
			w := whole(p.b)
			c.B = &w
			if other := p.b.Name(); other != c.Name {
				c.Name += "; in B " + other
			}
		}
		c.Points = r.points(p.a, p.b)
		r.Curves = append(r.Curves, c)
	}
	return nil
}

// telling returns the part of a setting by which curves of both groups are matched. That is all of it or, if settings
// may differ, all except what has one value in each group. So two locks, or two TTLs, are compared over the axes that
// both have.
func telling(a, b []capacity.Curve, lenient bool) func(capacity.Setting) capacity.Setting {
	var blank []int
	if lenient {
		one := func(curves []capacity.Curve, field int) bool {
			return !slices.ContainsFunc(curves, func(c capacity.Curve) bool {
				return !reflect.ValueOf(c.Setting).Field(field).Equal(reflect.ValueOf(curves[0].Setting).Field(field))
			})
		}
		for i := range reflect.TypeFor[capacity.Setting]().NumField() {
			if one(a, i) && one(b, i) {
				blank = append(blank, i)
			}
		}
	}
	return func(s capacity.Setting) capacity.Setting {
		for _, i := range blank {
			reflect.ValueOf(&s).Elem().Field(i).SetZero()
		}
		return s
	}
}

// twin returns the reading of a curve with the users and the rate of another reading.
func twin(c capacity.Curve, of capacity.Reading) (capacity.Reading, bool) {
	list := slices.Concat(c.Closed, c.Open)
	i := slices.IndexFunc(list, func(r capacity.Reading) bool { return r.Users == of.Users && r.Rate == of.Rate })
	if i < 0 {
		return capacity.Reading{}, false
	}
	return list[i], true
}

// points compares the points of two curves; of one, if there is one group.
func (r *SweepResult) points(a, b capacity.Curve) []SweepPoint {
	var out []SweepPoint
	for _, x := range slices.Concat(a.Closed, a.Open) {
		readings := []capacity.Reading{x}
		if len(r.B) > 0 {
			y, ok := twin(b, x)
			if !ok {
				if x.Rate == 0 { // each search tries its own rates
					r.Alone = append(r.Alone, fmt.Sprintf("only in A: %s, %s", SweepPoint{Users: x.Users}.at(),
						a.Name()))
				}
				continue
			}
			readings = append(readings, y)
		}
		p := SweepPoint{Users: x.Users, Rate: x.Rate}
		var samples []map[string][]float64
		for i, one := range readings {
			for _, mark := range one.Marks {
				p.Marks = append(p.Marks, fmt.Sprintf("%c: %s", group(i), mark))
			}
			for _, wrong := range one.Wrong {
				p.Wrong = cmp.Or(p.Wrong, fmt.Sprintf("%c: %s", group(i), wrong))
			}
			samples = append(samples, r.values(i, one.Setting))
		}
		for _, k := range r.known {
			for i, q := range slices.Concat(k.Measures, k.Counts) {
				var groups [][]float64
				for _, s := range samples {
					groups = append(groups, s[q.Name])
				}
				if f, ok := compared(q, i >= len(k.Measures), r.Alpha, groups...); ok {
					p.Figures = append(p.Figures, f)
				}
			}
		}
		out = append(out, p)
	}
	for _, y := range b.Closed {
		if _, ok := twin(a, y); !ok {
			r.Alone = append(r.Alone, fmt.Sprintf("only in B: %s, %s", SweepPoint{Users: y.Users}.at(), b.Name()))
		}
	}
	return out
}

// values returns the values of a point's samples, by the names of SweepFigures.
func (r *SweepResult) values(group int, of capacity.Setting) map[string][]float64 {
	out := map[string][]float64{}
	for _, p := range r.analyses[group].Points {
		if p.Setting != of {
			continue
		}
		for _, s := range p.Samples {
			for name, v := range figures(s) {
				out[name] = append(out[name], v)
			}
		}
	}
	return out
}

// Hold tests demands on a comparison of two groups of sweeps. The worst point decides.
func (r *SweepResult) Hold(demands []Demand) []Answer {
	for _, d := range demands {
		r.Answers = append(r.Answers, r.held(d))
	}
	return r.Answers
}

func (r *SweepResult) held(d Demand) Answer {
	said := map[results.Verdict][]string{}
	n := 0
	for _, c := range r.Curves {
		for _, p := range c.Points {
			one := held(p.Figures, d)
			count := slices.ContainsFunc(p.Figures, func(f Figure) bool { return f.Count && f.Name == d.Name })
			if p.Wrong != "" && !count { // a violation counts, whatever the point is worth
				one = Answer{Verdict: results.Unknown, Reason: p.Wrong}
			}
			said[one.Verdict] = append(said[one.Verdict], fmt.Sprintf("with %s, %s: %s", p.at(), c.Name, one.Reason))
			n++
		}
	}
	for _, v := range []results.Verdict{results.Fail, results.Unknown} {
		if len(said[v]) > 0 {
			return Answer{d.text, v, fmt.Sprintf("at %d of %d points, the first %s", len(said[v]), n, said[v][0])}
		}
	}
	return Answer{d.text, results.Pass, fmt.Sprintf("at each of %d points, the first %s", n, said[results.Pass][0])}
}

// at names a point within its curve.
func (p SweepPoint) at() string {
	text := figure.Of(p.Users, "user")
	if p.Users == 1 {
		text = "1 user"
	}
	if p.Rate > 0 {
		text += fmt.Sprintf(" at %g/s", p.Rate)
	}
	return text
}
