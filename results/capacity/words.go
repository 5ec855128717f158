package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
)

// Paragraphs summarises the sweep for a design document: a paragraph for each lock at each distance.
func (a Analysis) Paragraphs() []string {
	var out []string
	var done []Setting
	for _, c := range a.Curves {
		of := c.Setting
		of.Locks, of.Own = 0, false
		if slices.Contains(done, of) {
			continue
		}
		done = append(done, of)
		var group []Curve
		for _, d := range a.Curves {
			if other := d.Setting; other.Backend == of.Backend {
				other.Locks, other.Own = 0, false
				if other == of {
					group = append(group, d)
				}
			}
		}
		slices.SortStableFunc(group, func(x, y Curve) int {
			if x.Own != y.Own { // a lock for each user comes last
				return map[bool]int{true: 1, false: -1}[x.Own]
			}
			return x.Locks - y.Locks
		})
		out = append(out, a.paragraph(of, group))
	}
	return out
}

// paragraph describes curves that differ only in the number of locks.
func (a Analysis) paragraph(of Setting, group []Curve) string {
	var throughputs []string
	var limits, bends, writes, plans []remark
	for _, c := range group {
		if peak := c.Peak(); peak != nil {
			most := fmt.Sprintf("%s cycles/s %s (%s)", figure.Number(peak.Cycles.Mid), c.over(),
				figure.Of(peak.Users, "user"))
			if c.AtLeast(*peak) {
				most = "at least " + most
			}
			throughputs = append(throughputs, most)
			limits = append(limits, remark{c, "is " + peak.Limit.String()})
			bends = append(bends, remark{c, c.bend()})
		} else if len(c.Closed) > 0 {
			throughputs = append(throughputs, "no usable measurement "+c.over())
		}
		if text := c.lasts(); text != "" {
			writes = append(writes, remark{c, text})
		}
		plans = append(plans, remark{c, a.plan(c)})
	}
	if len(throughputs) == 0 {
		throughputs = []string{"no closed loop was measured"}
	}
	parts := []string{strings.Join(a.title(of, group), ", ") + ": " + figure.List(throughputs)}
	if len(limits) > 0 {
		parts = append(parts, "the limit "+together(limits))
	}
	for _, more := range [][]remark{bends, writes, plans} {
		if len(more) > 0 {
			parts = append(parts, together(more))
		}
	}
	return strings.Join(parts, "; ") + ". " + a.circumstances()
}

// remark is a statement on a curve of a group.
type remark struct {
	of   Curve
	text string
}

// together joins statements on curves, and says common ones once.
func together(all []remark) string {
	if !slices.ContainsFunc(all, func(s remark) bool { return s.text != all[0].text }) {
		return all[0].text
	}
	var parts []string
	for _, s := range all {
		parts = append(parts, s.of.over()+" "+s.text)
	}
	return strings.Join(parts, ", ")
}

// title names the setting of a group, with the service's version, the achieved round trip, and the retry policy.
func (a Analysis) title(of Setting, group []Curve) []string {
	var out []string
	for _, w := range of.words() {
		switch {
		case of.RTT > 0 && w == "RTT "+figure.Duration(of.RTT):
			out = append(out, achieved(of.RTT, group))
		case of.Retry != "" && w == "retry "+of.Retry && group[0].policy() != "":
			out = append(out, strings.Replace(group[0].policy(), ": ", " (", 1)+")")
		default:
			out = append(out, w)
		}
	}
	name, _, _ := strings.Cut(of.Backend, "-")
	for _, key := range []string{of.Backend, name} {
		if v := a.Service[key+".version"]; v != "" {
			out[0] = strings.TrimSpace(of.Backend + " " + v + " " + of.Lock)
			break
		}
	}
	return out
}

// achieved describes the measured round trip next to the requested one: the median over the points.
func achieved(asked int64, group []Curve) string {
	var trips []float64
	for _, c := range group {
		for _, r := range slices.Concat(c.Closed, c.Open) {
			if r.Trip.N > 0 {
				trips = append(trips, r.Trip.Mid)
			}
		}
	}
	if len(trips) == 0 {
		return fmt.Sprintf("RTT not measured (%s added)", figure.Duration(asked))
	}
	return fmt.Sprintf("RTT %s (%s added)", figure.Milli(Summary(trips).Mid), figure.Duration(asked))
}

// policy describes the retry policy of a curve; "": it has none, or it is unknown.
func (c Curve) policy() string {
	for _, r := range slices.Concat(c.Closed, c.Open) {
		if r.Policy != "" {
			return "retry " + r.Retry + ": " + r.Policy
		}
	}
	return ""
}

// Brackets explains the bounds of figures, which stand in brackets after or below them; "": there are none.
func (a Analysis) Brackets() string {
	spread, interval := false, false
	for _, c := range a.Curves {
		for _, r := range slices.Concat(c.Closed, c.Open) {
			spread = spread || r.Cycles.N > 1 && r.Cycles.Spread
			interval = interval || r.Cycles.N > 1 && !r.Cycles.Spread
		}
	}
	switch {
	case spread && interval:
		return "Bounds are 95 % intervals of the median if n is at least 6, else the minimum and maximum of the n samples."
	case spread:
		return "Bounds are the minimum and maximum of the n samples: a 95 % interval needs 6."
	case interval:
		return "Bounds are 95 % intervals of the median."
	}
	return ""
}

// openWords explains the columns on unserved and late arrivals.
const openWords = "Open loops: \"unserved\" arrivals never got a user, \"late\" ones began more than 1 ms late, and " +
	"\"own lag\" is the generator's delay when a user was free (p99)."

// tails says when a quantile is not shown.
func tails() string {
	return fmt.Sprintf("A - means too few acquires for that quantile, over all samples: p90 needs %s, p99 %s, p99.9 %s, p99.99 %s.",
		figure.Count(figure.Samples(0.9)), figure.Count(figure.Samples(0.99)), figure.Count(figure.Samples(0.999)),
		figure.Count(figure.Samples(0.9999)))
}

// Title names what was measured: the scenario, or the locks if the scenario is capacity's own.
func (a Analysis) Title() string {
	if a.Scenario != "capacity" {
		return "Capacity of " + a.Scenario
	}
	var locks []string
	for _, c := range a.Curves {
		if name := strings.TrimSpace(c.Backend + " " + c.Lock); !slices.Contains(locks, name) {
			locks = append(locks, name)
		}
	}
	return "Capacity of " + cmp.Or(figure.List(locks), a.Scenario)
}

// circumstances says how the figures were measured.
func (a Analysis) circumstances() string {
	on := "one machine"
	if n := a.Host["cores"]; n != "" {
		on += " of " + n + " cores"
	}
	provider := ""
	if a.Provider != "" {
		provider = ", provider " + a.Provider
	}
	shared := "servers and clients on "
	if a.Attached {
		shared = "servers elsewhere, clients on "
	}
	return fmt.Sprintf("Measured with %s%s%s, for %s per run.", shared, on, provider, figure.Duration(a.Measured))
}

func (c Curve) over() string {
	switch {
	case c.Own:
		return "with a lock for each user"
	case c.Locks == 1:
		return "on one lock"
	}
	return "over " + figure.Of(c.Locks, "lock")
}

// AtLeast reports whether a peak is only a lower bound of the lock's: more users would do more, or the generator or
// the network was the limit.
func (c Curve) AtLeast(peak Reading) bool {
	return slices.ContainsFunc(peak.Limit.Candidates,
		func(c Candidate) bool { return c.Cause == Users && c.Reached }) ||
		slices.ContainsFunc(c.Closed, func(r Reading) bool {
			return r.Users > peak.Users && (r.Limit.Cause == Generator || r.Limit.Cause == Emulation)
		})
}

// bend says where the curve bends.
func (c Curve) bend() string {
	if c.Fit == nil {
		return "no knee was found (" + c.NoFit + ")"
	}
	f := c.Fit
	knee, peak := f.users(f.KneeRange), f.users(f.PeakRange)
	switch {
	case knee == "":
		return fmt.Sprintf("no knee up to %s", figure.Of(f.To, "user"))
	case peak == "":
		return fmt.Sprintf("it bends at %s and still rises at %s", knee, figure.Of(f.To, "user"))
	}
	return fmt.Sprintf("it bends at %s and is highest at %s", knee, peak)
}

// Bends returns the number of users at which the curve bends, and at which it is highest, with their ranges if known.
func (c Curve) Bends() (knee, peak string) {
	if c.Fit == nil {
		return "no law fits", "no law fits"
	}
	beyond := fmt.Sprintf("not up to %s", figure.Of(c.Fit.To, "user"))
	return cmp.Or(c.Fit.users(c.Fit.KneeRange), beyond), cmp.Or(c.Fit.users(c.Fit.PeakRange), beyond)
}

// users formats a range of users; "": it lies beyond those measured.
func (f Fit) users(r Range) string {
	if !(r.Mid <= float64(f.To)) {
		return ""
	}
	s := figure.Of(int(math.Round(r.Mid)), "user")
	if low, high := math.Round(r.Low), math.Round(r.High); high > float64(f.To) {
		return s + fmt.Sprintf(" (%.0f to more than %d)", low, f.To)
	} else if low != high {
		return s + fmt.Sprintf(" (%.0f to %.0f)", low, high)
	}
	return s
}

// plan says how much to plan for, rounded down to two digits; without such a figure, why, and what to do.
func (a Analysis) plan(c Curve) string {
	switch {
	case a.Objective == nil:
		return "no search for a rate to plan for: " + c.Kept.Why
	case len(a.Asked) > 0:
		return fmt.Sprintf("the highest rate that keeps %s: %s", a.Objective, c.Kept.Why)
	case !c.Kept.Confirmed:
		return fmt.Sprintf("no rate was confirmed for %s: %s", a.Objective, c.Kept.Why)
	}
	return fmt.Sprintf("plan for at most %s acquires/s at %s", figure.Number(round(c.Kept.Rate)), a.Objective)
}

// law formats the fit.
func (f Fit) law() string {
	r := func(r Range) string { return fmt.Sprintf("%.3g (%.3g to %.3g)", r.Mid, r.Low, r.High) }
	s := fmt.Sprintf("λ %s, σ %s, κ %s; deviation from the %d points up to %s: mean %s, maximum %s", r(f.LambdaRange),
		r(f.SigmaRange), r(f.KappaRange), f.Points, figure.Of(f.To, "user"), percent(f.Miss), percent(f.WorstMiss))
	if f.Spread > 0 {
		s += fmt.Sprintf("; samples of one point differ by %s", percent(f.Spread))
	}
	return s
}

// head describes the sweep.
func (a Analysis) head() []string {
	out := []string{fmt.Sprintf("each point %s of %s after a warm-up of %s; seed %d; lockquake %s",
		figure.Of(a.Repeat, "run"), figure.Duration(a.Measured), figure.Duration(a.Warm), a.Seed, a.Version)}
	if a.Objective != nil {
		out = append(out, "objective: "+a.Objective.String()+", from the intended start of an acquire to its grant")
	}
	if a.Interrupted {
		out = append(out, "the sweep was interrupted: these are its results so far")
	}
	return out
}

// omitted says what is missing in the figures of a curve, and why.
func (c Curve) omitted() []string {
	var out []string
	for _, r := range slices.Concat(c.Closed, c.Open) {
		for _, m := range r.Marks {
			out = append(out, r.at()+": "+m)
		}
		for _, why := range compact(r.Spoilt) {
			out = append(out, r.at()+": "+why)
		}
	}
	for _, l := range c.Left {
		out = append(out, l.at()+": not measured: "+l.Why)
	}
	return out
}

// limits names the limit of each point. Neighbours with the same limit share an entry, with the figures of the
// highest throughput.
func (c Curve) limits() []string {
	var out []string
	for i := 0; i < len(c.Closed); {
		best, j := c.Closed[i], i
		for ; j < len(c.Closed) && c.Closed[j].Limit.Cause == best.Limit.Cause; j++ {
			if c.Closed[j].Cycles.Mid > best.Cycles.Mid {
				best = c.Closed[j]
			}
		}
		at, evidence := best.at(), best.Limit.Evidence
		if j-i > 1 {
			at = fmt.Sprintf("%d to %s", c.Closed[i].Users, c.Closed[j-1].at())
			evidence = "with " + figure.Count(best.Users) + ": " + evidence
		}
		out = append(out, fmt.Sprintf("%s: %s (%s)", at, best.Limit.Cause, evidence))
		i = j
	}
	return out
}

// compact counts equal texts.
func compact(texts []string) []string {
	var out []string
	for i, t := range texts {
		if slices.Contains(texts[:i], t) {
			continue
		}
		n := 0
		for _, u := range texts {
			if u == t {
				n++
			}
		}
		out = append(out, figure.Of(n, "sample")+" spoilt: "+t)
	}
	return out
}

// at names a point within its curve.
func (s Setting) at() string {
	if s.Rate > 0 {
		return figure.Number(s.Rate) + "/s offered"
	}
	return figure.Of(s.Users, "user")
}
