package script

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// The most that a drawn script may have.
const (
	mostFaults  = 4
	mostVisits  = 4
	mostClients = 4
	mostUsers   = 4
	mostLocks   = 3
)

// drawTries is how often a script that a run would reject is drawn or mutated anew, before a simpler one is taken.
const drawTries = 20

// Draw returns a random script. It is a function of the space and of r's output.
func (s Space) Draw(r *rand.Rand) Script {
	d := newDrawer(s, r, s.TTL)
	for range drawTries {
		if x := s.normal(d.script()); s.Check(x) == nil {
			return x
		}
	}
	return s.normal(Script{For: s.Shortest, Crowd: d.crowd()})
}

// drawer draws the parts of scripts.
type drawer struct {
	dice
	space Space
}

// newDrawer returns a drawer of parts for scripts with a TTL.
func newDrawer(s Space, r *rand.Rand, ttl time.Duration) drawer { return drawer{dice{r, ttl}, s} }

// dice draws numbers and times.
type dice struct {
	r   *rand.Rand
	ttl time.Duration
}

func (d drawer) script() Script {
	x := Script{TTL: d.another()}
	d.ttl = d.space.ttl(x)
	x.For, x.Crowd = d.load(), d.crowd()
	for range 1 + d.count(mostVisits-1) {
		x.Visits = append(x.Visits, d.visit(x))
	}
	if d.chance(0.2) {
		x.Crowd = Crowd{} // the visits are alone
	}
	faults := 0
	if d.chance(0.75) {
		faults = 1 + d.count(mostFaults-1)
	}
	for range faults {
		if in, ok := d.injection(x); ok {
			x.Faults = append(x.Faults, in)
		}
	}
	return x
}

// another draws a TTL; 0: the space's.
func (d drawer) another() time.Duration {
	if len(d.space.TTLs) < 2 {
		return 0
	}
	ttl := d.space.TTLs[d.r.IntN(len(d.space.TTLs))]
	if ttl == d.space.TTL {
		return 0
	}
	return ttl
}

// load draws the length of a load.
func (d drawer) load() time.Duration {
	low, high := bounds(d.ttl)
	if d.space.Patience > 0 && d.chance(0.5) {
		high = max(high, d.space.Patience)
	}
	return round(d.between(low, high))
}

// chance returns true with this probability.
func (d dice) chance(p float64) bool { return d.r.Float64() < p }

// count draws a number from 0 to most, each half as likely as the one before.
func (d dice) count(most int) int {
	n := 0
	for n < most && d.chance(0.5) {
		n++
	}
	return n
}

// between draws a time, uniformly on a logarithmic scale.
func (d dice) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return time.Duration(float64(low) * math.Exp(d.r.Float64()*math.Log(float64(high)/float64(low))))
}

// least is the shortest time that is drawn.
const least = time.Millisecond

// length draws a duration: about a TTL, or anything that the run has room for.
func (d dice) length(run time.Duration) time.Duration {
	if d.chance(0.5) {
		return round(d.between(d.ttl/8, 4*d.ttl))
	}
	return round(d.between(least, run))
}

// moment draws a time within the run.
func (d dice) moment(run time.Duration) time.Duration {
	return round(time.Duration(d.r.Float64() * 0.8 * float64(run)))
}

// round rounds a time so that people can read it: whole milliseconds, and two or three digits for longer ones.
func round(t time.Duration) time.Duration {
	unit := time.Millisecond
	for t >= 1000*unit {
		unit *= 10
	}
	return max(t.Round(unit), least)
}

// crowd draws the workload. Mostly it is small: in a large one the visits wait for the lock until the run is over.
func (d drawer) crowd() Crowd {
	c := Crowd{Clients: 1 + d.count(mostClients-1), Users: 1 + d.count(mostUsers-1), Locks: 1}
	c.Hold = round(d.between(least, 2*d.ttl))
	if d.chance(0.25) {
		c.Locks = 2 + d.r.IntN(mostLocks-1)
	}
	if d.chance(0.25) {
		c.Think = round(d.between(least, d.ttl))
	}
	if d.chance(0.25) {
		c.Timeout = round(d.between(d.ttl/8, 4*d.ttl))
	}
	c.Renew = d.space.Extends && d.chance(0.25)
	if d.space.Shared && d.chance(0.25) {
		c.Shared = float64(1+d.r.IntN(9)) / 10
	}
	return c
}

// injection draws a fault; ok is false if none can be delivered.
func (d drawer) injection(x Script) (in Injection, ok bool) {
	if len(d.space.Faults) == 0 {
		return in, false
	}
	f := d.space.Faults[d.r.IntN(len(d.space.Faults))]
	in = Injection{Use: f.Kind.Name, Keys: caster{d.dice, f}.keys(), On: d.target(f, x), At: d.moment(x.For)}
	if d.space.lasts(in) {
		in.For = d.length(x.For)
	}
	return in, true
}

// target draws the target of a fault.
func (d drawer) target(f Fault, x Script) string {
	targets := f.Targets
	if f.OnUsers {
		targets = append(slices.Clone(targets), x.users()...)
	}
	return targets[d.r.IntN(len(targets))]
}

// lasts reports whether an injection is active until it is healed.
func (s Space) lasts(in Injection) bool {
	k := s.kinds[in.Use]
	f, err := newFault(k, in.Keys)
	return err == nil && k.Lasts(f)
}

// users lists the users of the visits, each once.
func (x Script) users() (out []string) {
	for _, v := range x.Visits {
		if !slices.Contains(out, v.User) {
			out = append(out, v.User)
		}
	}
	return out
}

func (d drawer) visit(x Script) Visit {
	v := Visit{User: d.space.Users[d.r.IntN(len(d.space.Users))]}
	if x.Crowd.Locks > 1 && d.chance(0.25) {
		v.Lock = d.r.IntN(x.Crowd.Locks)
	}
	v.Shared = d.space.Shared && d.chance(0.25)
	if d.chance(0.9) {
		v.Hold = d.length(x.For)
	}
	if d.chance(0.1) {
		v.Patience = d.length(x.For)
	}
	if d.space.Cancels && d.chance(0.05) {
		v.Cancel = d.length(x.For)
	}
	if d.space.Renews && d.chance(0.25) {
		v.Renew = d.length(x.For)
	}
	if d.chance(0.25) {
		v.Write = round(d.between(least, d.ttl/2)) // a later write that is on purpose need not be hunted
	}
	v.Close = d.space.Closes && d.chance(0.05)
	takes := v.Hold
	if d.chance(0.5) {
		if v.Arm = d.arm(x, v); v.Arm != nil {
			takes += v.Arm.Wait
		}
	}
	v.At = d.moment(max(x.For-takes, x.For/8)) // what comes after the end is not done
	return v
}

// arm draws the point at which a visit's user is stopped; nil if it passes none.
func (d drawer) arm(x Script, v Visit) *Arm {
	var points []Point
	for _, p := range d.space.Points {
		if v.makes(p.Before) {
			points = append(points, p)
		}
	}
	if len(points) == 0 {
		return nil
	}
	p := points[d.r.IntN(len(points))]
	a := &Arm{Point: p.Name, Before: p.Before}
	if a.Die = d.space.Dies && d.chance(0.2); !a.Die {
		a.Wait = d.length(x.For)
	}
	return a
}

// makes reports whether a visit makes a call.
func (v Visit) makes(before string) bool {
	switch before {
	case acquire:
		return true
	case release:
		return !v.Close && (v.Hold > 0 || v.Until != nil)
	case renew:
		return v.Renew > 0
	case write:
		return v.Write > 0
	}
	return false
}
