package capacity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results/figure"
)

// Reading summarises the usable samples of a point.
type Reading struct {
	Setting
	Samples  int                 // that could be used
	Spoilt   []string            // why the others could not be used
	Policy   string              // how the lock waits for its next attempt; "": unknown, or it does not poll
	Verdicts map[string]int      // of the runs that could be used
	Cycles   Interval            // a second
	Writes   Interval            // a second, that the resource applied
	Lost     Interval            // the part of the acknowledged writes missing in the final value, 0 to 1
	Acquires int64               // that were timed, in all samples
	Latency  map[string]Interval // ms; quantiles with enough acquires
	Cycle    Interval            // ms
	Hold     Interval            // ms
	Handoff  Interval            // ms
	// InService is the mean number of users in service. Trip is the measured round trip in ms.
	InService, Trip, Requests, Fsync, Packets Interval
	// For an open loop: Late is the generator's own lag, p99 in ms. LateStarts and Unserved are arrivals per run.
	Late, LateStarts, Unserved Interval
	// HandoffMean is how long a lock was free while a user waited, in ms per cycle.
	HandoffMean Interval
	// Within is the number of users in service by Little's law, and Counted the counted one. Ratio is their ratio in
	// each sample.
	Within, Counted, Ratio Interval
	// Outside is the part of the users of a closed loop that were neither in a cycle nor thinking.
	Outside Interval

	CPU map[string]Interval // cores, by user
	// Machine is the cores used by all programs of the machine, Busiest those used by the busiest server.
	Machine, Busiest Interval
	ServerCores      float64 // what one server can use at most; 0: the machine
	Cores            int
	// the fullest of several hosts, if it is the same in all samples, else "several hosts"; "": there was only one
	Host   string
	Little Little
	Limit  Limit
	Tried  Trial // of an open loop with an objective: whether its runs kept it
	// Marks are the reasons not to fit the point; it may be fitted without any. Wrong are the marks that say that its
	// figures are not a lock's.
	Marks, Wrong []string
}

// Curve has the points whose settings differ only in users and rate.
type Curve struct {
	Setting           // of all of them, without users and rate
	Closed  []Reading // by users
	Open    []Reading // by rate, and users
	Fit     *Fit
	NoFit   string // why there is none
	Kept    Kept   // the result of the search for the objective
	Left    []Left
}

// Analysis is the result of a sweep.
type Analysis struct {
	Sweep
	Curves []Curve
}

// Analyse analyses a sweep.
func Analyse(s Sweep) Analysis {
	s.Points = gather(s.Points)
	a := Analysis{Sweep: s}
	curve := func(of Setting) *Curve {
		of.Users, of.Rate = 0, 0
		for i := range a.Curves {
			if a.Curves[i].Setting == of {
				return &a.Curves[i]
			}
		}
		a.Curves = append(a.Curves, Curve{Setting: of})
		return &a.Curves[len(a.Curves)-1]
	}
	for _, p := range s.Points {
		if p.Retry == "default" {
			p.Policy = cmp.Or(p.Policy, s.Service["lock.retry"]) // older files do not have it for each point
		}
		c, r := curve(p.Setting), read(p, s.Measured)
		if p.Rate > 0 {
			c.Open = append(c.Open, r)
		} else {
			c.Closed = append(c.Closed, r)
		}
	}
	for _, l := range s.Left {
		c := curve(l.Setting)
		c.Left = append(c.Left, l)
	}
	for i := range a.Curves {
		a.Curves[i].finish(s)
	}
	return a
}

// gather merges the samples of equal settings into one point.
func gather(points []Point) []Point {
	var out []Point
	for _, p := range points {
		if at := slices.IndexFunc(out, func(q Point) bool { return q.Setting == p.Setting }); at >= 0 {
			out[at].Samples = slices.Concat(out[at].Samples, p.Samples)
			out[at].Policy = cmp.Or(out[at].Policy, p.Policy)
		} else {
			out = append(out, p)
		}
	}
	return out
}

// finish judges the points of a curve, and then the curve.
func (c *Curve) finish(s Sweep) {
	by := func(a, b Reading) int { return cmp.Or(cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Users, b.Users)) }
	slices.SortFunc(c.Closed, by)
	slices.SortFunc(c.Open, by)
	one := 0.0
	if len(c.Closed) > 0 && c.Closed[0].Users == 1 {
		one = c.Closed[0].Cycles.Mid
	}
	for _, list := range [][]Reading{c.Closed, c.Open} {
		for i := range list {
			list[i].judge(one, s.Objective)
			list[i].try(s)
		}
	}
	var levels []level
	for _, r := range c.Closed {
		if len(r.Marks) > 0 {
			continue
		}
		l := level{users: float64(r.Users)}
		for _, p := range s.Points {
			if p.Setting == r.Setting {
				l.samples = append(l.samples, p.values(func(s Sample) *float64 { return &s.Cycles })...)
			}
		}
		levels = append(levels, l)
	}
	var err error
	if c.Fit, err = fit(levels, seed.Rand(s.Seed, "capacity "+c.Name())); err != nil {
		c.Fit, c.NoFit = nil, err.Error()
	}
	c.Kept = keptOf(s, c.Setting)
}

// Name identifies a curve among others in words.
func (c Curve) Name() string { return strings.Join(c.words(), ", ") }

func (s Setting) words() []string {
	out := []string{strings.TrimSpace(s.Backend + " " + s.Lock)}
	if s.Nodes > 0 {
		out = append(out, figure.Of(s.Nodes, "member"))
	}
	if s.Locks > 0 || s.Own { // else it is of curves that differ in them
		out = append(out, s.locks())
	}
	if s.RTT > 0 {
		out = append(out, "RTT "+figure.Duration(s.RTT))
	}
	if s.Retry != "" {
		out = append(out, "retry "+s.Retry)
	}
	if s.Hold > 0 {
		out = append(out, "hold "+figure.Duration(s.Hold))
	}
	if s.TTL > 0 {
		out = append(out, "TTL "+figure.Duration(s.TTL))
	}
	if s.Set != "" {
		out = append(out, s.Set)
	}
	return out
}

// locks says how many locks the users share.
func (s Setting) locks() string {
	if s.Own {
		return "a lock for each user"
	}
	return figure.Of(s.Locks, "lock")
}

// Usable reports whether any of its runs can be used. A curve that was left out has none, and is no failure.
func (c Curve) Usable() bool {
	readings := slices.Concat(c.Closed, c.Open)
	return len(readings) == 0 || slices.ContainsFunc(readings, func(r Reading) bool { return r.Samples > 0 })
}

// Peak returns the reading with the most cycles a second in the closed loop, among those that measure the lock
// itself; nil: there is none.
func (c Curve) Peak() *Reading {
	var best *Reading
	for i, r := range c.Closed {
		if len(r.Marks) == 0 && (best == nil || r.Cycles.Mid > best.Cycles.Mid) {
			best = &c.Closed[i]
		}
	}
	return best
}

// Usable returns the samples that are not spoilt.
func (p Point) Usable() []Sample {
	return slices.DeleteFunc(slices.Clone(p.Samples), func(s Sample) bool { return s.Spoilt != "" })
}

// values returns the values of the usable samples that have one.
func (p Point) values(of func(Sample) *float64) []float64 {
	var out []float64
	for _, s := range p.Usable() {
		if v := of(s); v != nil {
			out = append(out, *v)
		}
	}
	return out
}

// read summarises a point whose runs were measured for the given ns.
func read(p Point, measured int64) Reading {
	sum := func(of func(Sample) *float64) Interval { return Summary(p.values(of)) }
	r := Reading{
		Setting: p.Setting, Policy: p.Policy, Verdicts: map[string]int{}, Latency: map[string]Interval{},
		CPU:       map[string]Interval{},
		Cycles:    sum(func(s Sample) *float64 { return &s.Cycles }),
		Writes:    sum(func(s Sample) *float64 { return s.Writes }),
		Lost:      sum(func(s Sample) *float64 { return s.Lost }),
		Cycle:     sum(func(s Sample) *float64 { return &s.Cycle }),
		Hold:      sum(func(s Sample) *float64 { return &s.HoldMean }),
		Handoff:   sum(func(s Sample) *float64 { return s.Handoff }),
		InService: sum(func(s Sample) *float64 { return &s.InService }),
		Trip:      sum(func(s Sample) *float64 { return s.RTT }),
		Requests:  sum(func(s Sample) *float64 { return s.Requests }),
		Fsync:     sum(func(s Sample) *float64 { return s.Fsync }),
		Packets:   sum(func(s Sample) *float64 { return s.Packets }),
		Late:      sum(func(s Sample) *float64 { return &s.Late }),
		Machine:   sum(func(s Sample) *float64 { return s.Machine }),
		Busiest:   sum(func(s Sample) *float64 { return s.Busiest }),
		Within:    sum(func(s Sample) *float64 { n := s.within(); return &n }),
		Counted:   sum(func(s Sample) *float64 { return s.counted(p.Setting) }),
		Ratio: sum(func(s Sample) *float64 {
			counted, within := s.counted(p.Setting), s.within()
			if counted == nil || within <= 0 {
				return nil
			}
			n := *counted / within
			return &n
		}),
		Outside:     sum(func(s Sample) *float64 { return s.Outside }),
		HandoffMean: sum(func(s Sample) *float64 { return s.HandoffMean }),
		Unserved:    sum(func(s Sample) *float64 { n := float64(s.Unserved); return &n }),
		LateStarts:  sum(func(s Sample) *float64 { n := float64(s.LateStarts); return &n }),
	}
	in := func(m map[string]float64, name string) *float64 {
		if v, ok := m[name]; ok {
			return &v
		}
		return nil
	}
	for _, s := range p.Usable() {
		r.Acquires += s.acquires(measured)
	}
	for _, name := range append(slices.Clone(Quantiles), "max", "mean") {
		if i := slices.Index(Quantiles, name); i >= 0 && r.Acquires < figure.Samples(Levels[i]) {
			continue
		}
		if i := sum(func(s Sample) *float64 { return in(s.Latency, name) }); i.N > 0 {
			r.Latency[name] = i
		}
	}
	for _, name := range processes {
		if i := sum(func(s Sample) *float64 { return in(s.CPU, name) }); i.N > 0 {
			r.CPU[name] = i
		}
	}
	for _, s := range p.Samples {
		if s.Spoilt != "" {
			r.Spoilt = append(r.Spoilt, s.Spoilt)
			continue
		}
		if r.Host = cmp.Or(r.Host, s.Host); r.Host != s.Host {
			r.Host = "several hosts"
		}
		r.Samples++
		r.Verdicts[s.Verdict]++
		r.Cores, r.ServerCores = max(r.Cores, s.Cores), max(r.ServerCores, s.ServerCores)
	}
	return r
}

// try counts the runs of an open loop that kept the objective: every statement on a rate depends on this count.
func (r *Reading) try(s Sweep) {
	if r.Rate == 0 || s.Objective == nil {
		return
	}
	r.Tried.Rate = r.Rate
	for _, p := range s.Points {
		if p.Setting == r.Setting {
			s.Objective.try(&r.Tried, p.Samples, s.Measured)
		}
	}
}

// judge names the limit of a reading, and says why it is not fitted.
func (r *Reading) judge(one float64, o *Objective) {
	r.Limit, r.Little = limitOf(*r, one, o), littleOf(*r)
	if r.Samples == 0 {
		r.Wrong = append(r.Wrong, "no sample can be used")
	}
	if r.Little.Violated {
		r.Wrong = append(r.Wrong, "Little's law does not hold: "+r.Little.String())
	}
	if n := r.Verdicts["fail"]; n > 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("the verdict is fail in %d of %d runs: it did not work as a lock", n,
			r.Samples))
	}
	if c := r.Limit.Cause; c == Generator || c == Emulation {
		r.Marks = append(r.Marks, fmt.Sprintf("%s was the limit: %s", c, r.Limit.Evidence))
	}
	r.Marks = append(r.Marks, r.Wrong...)
}
