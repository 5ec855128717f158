package script

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"
)

// mostChanges is how many changes one mutation makes at most.
const mostChanges = 4

// Mutate returns a script with one to four changes, never the same one. with are scripts of which parts may be taken
// over; there may be none. It is a function of the space, the scripts and what r yields.
func (s Space) Mutate(r *rand.Rand, of Script, with []Script) Script {
	d := drawer{s, r}
	for range drawTries {
		x := of.Clone()
		for range 1 + r.IntN(mostChanges) {
			changes := d.changes(x, with)
			changes[r.IntN(len(changes))](&x)
		}
		if x = s.normal(x); !reflect.DeepEqual(x, s.normal(of)) && s.Check(x) == nil {
			return x
		}
	}
	return s.Draw(r)
}

// changes lists what can be changed of a script. What comes twice comes twice as often.
func (d drawer) changes(x Script, with []Script) []func(*Script) {
	out := []func(*Script){d.load, d.anotherCrowd, d.addVisit, d.scale}
	if len(d.Faults) > 0 {
		out = append(out, d.addFault, d.addFault)
	}
	if len(x.Faults) > 0 {
		out = append(out, d.dropFault, d.moveFault, d.aimFault, d.keyFault, d.repeatFault)
	}
	if len(x.Visits) > 0 {
		out = append(out, d.dropVisit, d.moveVisit, d.anotherVisit, d.armVisit)
	}
	if len(with) > 0 {
		out = append(out, func(x *Script) { d.cross(x, with[d.r.IntN(len(with))]) })
	}
	return out
}

func (d drawer) load(x *Script) { x.For = round(d.between(d.Shortest, d.Longest)) }

// anotherCrowd draws one of the crowd's numbers anew.
func (d drawer) anotherCrowd(x *Script) {
	now, c := d.crowd(), &x.Crowd
	switch d.r.IntN(7) {
	case 0:
		c.Clients = now.Clients
	case 1:
		c.Users = now.Users
	case 2:
		c.Hold = d.near(c.Hold, now.Hold)
	case 3:
		c.Locks = now.Locks
	case 4:
		c.Think = now.Think
	case 5:
		c.Timeout = now.Timeout
	default:
		c.Renew, c.Shared = now.Renew, now.Shared
	}
}

// near is a time between half and twice another, or a new one.
func (d drawer) near(t, anew time.Duration) time.Duration {
	if t > 0 && d.chance(0.7) {
		return round(d.between(t/2, 2*t))
	}
	return anew
}

// about moves a time of the run a little, or anywhere.
func (d drawer) about(at, run time.Duration) time.Duration {
	if d.chance(0.7) {
		by := d.between(least, run/4)
		if d.chance(0.5) {
			by = -by
		}
		return round(max(at+by, 0))
	}
	return d.moment(run)
}

func (d drawer) addFault(x *Script) {
	if in, ok := d.injection(*x); ok && len(x.Faults) < mostFaults {
		x.Faults = append(x.Faults, in)
	}
}

func (d drawer) fault(x *Script) *Injection { return &x.Faults[d.r.IntN(len(x.Faults))] }

func (d drawer) dropFault(x *Script) {
	if i := d.r.IntN(max(len(x.Faults), 1)); i < len(x.Faults) {
		x.Faults = slices.Delete(x.Faults, i, i+1)
	}
}

func (d drawer) moveFault(x *Script) {
	if len(x.Faults) == 0 {
		return
	}
	in := d.fault(x)
	if in.For > 0 && d.chance(0.5) {
		in.For = d.near(in.For, d.length(x.For))
		return
	}
	in.At = d.about(in.At, x.For)
}

// repeatFault makes the same fault again at another time.
func (d drawer) repeatFault(x *Script) {
	if n := len(x.Faults); n == 0 || n >= mostFaults {
		return
	}
	in := *d.fault(x)
	in.As, in.After, in.Until = "", nil, nil
	in.At = d.moment(x.For)
	x.Faults = append(x.Faults, in)
}

// of finds the entry of the space that an injection is of.
func (d drawer) of(in Injection) (Fault, bool) {
	i := slices.IndexFunc(d.Faults, func(f Fault) bool { return f.Kind.Name == in.Use })
	if i < 0 {
		return Fault{}, false
	}
	return d.Faults[i], true
}

func (d drawer) aimFault(x *Script) {
	if len(x.Faults) == 0 {
		return
	}
	in := d.fault(x)
	if f, ok := d.of(*in); ok {
		in.On = d.target(f, *x)
	}
}

func (d drawer) keyFault(x *Script) {
	if len(x.Faults) == 0 {
		return
	}
	in := d.fault(x)
	f, ok := d.of(*in)
	if !ok {
		return
	}
	if in.Keys = d.changed(f, in.Keys); d.chance(0.3) {
		in.Keys = d.keys(f)
	}
	if !d.lasts(*in) {
		in.For = 0
	} else if in.For == 0 {
		in.For = d.length(x.For)
	}
}

func (d drawer) addVisit(x *Script) {
	if len(x.Visits) < mostVisits {
		x.Visits = append(x.Visits, d.visit(*x))
	}
}

func (d drawer) dropVisit(x *Script) {
	if i := d.r.IntN(max(len(x.Visits), 1)); i < len(x.Visits) {
		x.Visits = slices.Delete(x.Visits, i, i+1)
	}
}

func (d drawer) moveVisit(x *Script) {
	if len(x.Visits) == 0 {
		return
	}
	v := &x.Visits[d.r.IntN(len(x.Visits))]
	switch {
	case d.chance(0.4):
		v.At = d.about(v.At, x.For)
	case v.Arm != nil && v.Arm.Wait > 0 && d.chance(0.5):
		v.Arm.Wait = d.near(v.Arm.Wait, d.length(x.For))
	default:
		v.Hold = d.near(v.Hold, d.length(x.For))
	}
}

// anotherVisit draws one thing of a visit anew.
func (d drawer) anotherVisit(x *Script) {
	if len(x.Visits) == 0 {
		return
	}
	now, v := d.visit(*x), &x.Visits[d.r.IntN(len(x.Visits))]
	switch d.r.IntN(6) {
	case 0:
		v.User = now.User
	case 1:
		v.Lock, v.Shared = now.Lock, now.Shared
	case 2:
		v.Renew = now.Renew
	case 3:
		v.Write = now.Write
	case 4:
		v.Patience, v.Cancel = now.Patience, now.Cancel
	default:
		v.Close = now.Close
	}
}

func (d drawer) armVisit(x *Script) {
	if len(x.Visits) == 0 {
		return
	}
	v := &x.Visits[d.r.IntN(len(x.Visits))]
	if v.Arm != nil && d.chance(0.2) {
		v.Arm = nil
		return
	}
	v.Arm = d.arm(*x, *v)
}

// scale makes all times of faults and visits longer or shorter by one factor.
func (d drawer) scale(x *Script) {
	by := math.Exp((d.r.Float64() - 0.5) * 2 * math.Log(2))
	for i := range x.Faults {
		times(by, &x.Faults[i].At, &x.Faults[i].For)
	}
	for i := range x.Visits {
		v := &x.Visits[i]
		times(by, &v.At, &v.Hold, &v.Patience, &v.Cancel, &v.Renew, &v.Write)
		if v.Arm != nil {
			times(by, &v.Arm.Wait)
		}
	}
}

// times multiplies those times that are set.
func times(by float64, list ...*time.Duration) {
	for _, t := range list {
		if *t > 0 {
			*t = round(time.Duration(by * float64(*t)))
		}
	}
}

// cross takes over the faults, the visits or the crowd of another script.
func (d drawer) cross(x *Script, other Script) {
	other = other.Clone()
	switch d.r.IntN(4) {
	case 0:
		x.Crowd = other.Crowd
	case 1:
		x.Visits = other.Visits
	case 2:
		x.Faults = other.Faults
	default:
		for _, in := range other.Faults {
			if len(x.Faults) < mostFaults && d.chance(0.5) {
				in.As, in.After, in.Until = "", nil, nil
				x.Faults = append(x.Faults, in)
			}
		}
		for _, v := range other.Visits {
			if len(x.Visits) < mostVisits && d.chance(0.5) {
				x.Visits = append(x.Visits, v)
			}
		}
	}
}
