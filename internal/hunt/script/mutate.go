package script

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"
)

// mostChanges is the largest number of changes in one mutation.
const mostChanges = 4

// Mutate returns a changed script, with one to four changes. Parts of the scripts in with may be taken over; with may
// be empty. The result is a function of the space, the scripts and r's output.
func (s Space) Mutate(r *rand.Rand, of Script, with []Script) Script {
	m := mutator{newDrawer(s, r, s.ttl(of))}
	for range drawTries {
		x := of.Clone()
		for range 1 + r.IntN(mostChanges) {
			changes := m.changes(x, with)
			changes[r.IntN(len(changes))](&x)
		}
		if x = s.normal(x); !reflect.DeepEqual(x, s.normal(of)) && s.Check(x) == nil {
			return x
		}
	}
	return s.Draw(r)
}

// mutator changes scripts.
type mutator struct{ draw drawer }

// changes lists the possible changes of a script. An entry that is listed twice is twice as likely.
func (m mutator) changes(x Script, with []Script) []func(*Script) {
	out := []func(*Script){m.load, m.anotherCrowd, m.addVisit, m.scale}
	if len(m.draw.space.TTLs) > 1 {
		out = append(out, func(x *Script) { x.TTL = m.draw.another() })
	}
	if len(m.draw.space.Faults) > 0 {
		out = append(out, m.addFault, m.addFault)
	}
	if len(x.Faults) > 0 {
		out = append(out, m.dropFault, m.moveFault, m.aimFault, m.keyFault, m.repeatFault)
	}
	if len(x.Visits) > 0 {
		out = append(out, m.dropVisit, m.moveVisit, m.anotherVisit, m.armVisit)
	}
	if len(with) > 0 {
		out = append(out, func(x *Script) { m.cross(x, with[m.draw.r.IntN(len(with))]) })
	}
	return out
}

func (m mutator) load(x *Script) {
	x.For = m.draw.load()
}

// anotherCrowd redraws one of the crowd's numbers.
func (m mutator) anotherCrowd(x *Script) {
	now, c := m.draw.crowd(), &x.Crowd
	switch m.draw.r.IntN(7) {
	case 0:
		c.Clients = now.Clients
	case 1:
		c.Users = now.Users
	case 2:
		c.Hold = m.draw.near(c.Hold, now.Hold)
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

// near returns a time between half and twice another, or a new one.
func (d dice) near(t, anew time.Duration) time.Duration {
	if t > 0 && d.chance(0.7) {
		return round(d.between(t/2, 2*t))
	}
	return anew
}

// about moves a time of the run a little, or anywhere.
func (d dice) about(at, run time.Duration) time.Duration {
	if d.chance(0.7) {
		by := d.between(least, run/4)
		if d.chance(0.5) {
			by = -by
		}
		return round(max(at+by, 0))
	}
	return d.moment(run)
}

func (m mutator) addFault(x *Script) {
	if in, ok := m.draw.injection(*x); ok && len(x.Faults) < mostFaults {
		x.Faults = append(x.Faults, in)
	}
}

func (m mutator) fault(x *Script) *Injection { return &x.Faults[m.draw.r.IntN(len(x.Faults))] }

func (m mutator) dropFault(x *Script) {
	if i := m.draw.r.IntN(max(len(x.Faults), 1)); i < len(x.Faults) {
		x.Faults = slices.Delete(x.Faults, i, i+1)
	}
}

func (m mutator) moveFault(x *Script) {
	if len(x.Faults) == 0 {
		return
	}
	in := m.fault(x)
	if m.draw.space.lasts(*in) && m.draw.chance(0.5) {
		in.For = m.draw.near(in.For, m.draw.length(x.For))
		return
	}
	in.At = m.draw.about(in.At, x.For)
}

// repeatFault makes the same fault again at another time.
func (m mutator) repeatFault(x *Script) {
	if n := len(x.Faults); n == 0 || n >= mostFaults {
		return
	}
	in := *m.fault(x)
	in.As, in.After, in.Until = "", nil, nil
	in.At = m.draw.moment(x.For)
	x.Faults = append(x.Faults, in)
}

// of returns the space's entry for an injection.
func (m mutator) of(in Injection) (Fault, bool) {
	i := slices.IndexFunc(m.draw.space.Faults, func(f Fault) bool { return f.Kind.Name == in.Use })
	if i < 0 {
		return Fault{}, false
	}
	return m.draw.space.Faults[i], true
}

func (m mutator) aimFault(x *Script) {
	if len(x.Faults) == 0 {
		return
	}
	in := m.fault(x)
	if f, ok := m.of(*in); ok {
		in.On = m.draw.target(f, *x)
	}
}

func (m mutator) keyFault(x *Script) {
	if len(x.Faults) == 0 {
		return
	}
	in := m.fault(x)
	f, ok := m.of(*in)
	if !ok {
		return
	}
	c := caster{m.draw.dice, f}
	if in.Keys = c.changed(in.Keys); m.draw.chance(0.3) {
		in.Keys = c.keys()
	}
	if !m.draw.space.lasts(*in) {
		in.For = 0
	} else if in.For == 0 {
		in.For = m.draw.length(x.For)
	}
}

func (m mutator) addVisit(x *Script) {
	if len(x.Visits) < mostVisits {
		x.Visits = append(x.Visits, m.draw.visit(*x))
	}
}

func (m mutator) dropVisit(x *Script) {
	if i := m.draw.r.IntN(max(len(x.Visits), 1)); i < len(x.Visits) {
		x.Visits = slices.Delete(x.Visits, i, i+1)
	}
}

func (m mutator) moveVisit(x *Script) {
	if len(x.Visits) == 0 {
		return
	}
	v := &x.Visits[m.draw.r.IntN(len(x.Visits))]
	switch {
	case m.draw.chance(0.4):
		v.At = m.draw.about(v.At, x.For)
	case v.Arm != nil && v.Arm.Wait > 0 && m.draw.chance(0.5):
		v.Arm.Wait = m.draw.near(v.Arm.Wait, m.draw.length(x.For))
	default:
		v.Hold = m.draw.near(v.Hold, m.draw.length(x.For))
	}
}

// anotherVisit redraws one part of a visit.
func (m mutator) anotherVisit(x *Script) {
	if len(x.Visits) == 0 {
		return
	}
	now, v := m.draw.visit(*x), &x.Visits[m.draw.r.IntN(len(x.Visits))]
	switch m.draw.r.IntN(6) {
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

func (m mutator) armVisit(x *Script) {
	if len(x.Visits) == 0 {
		return
	}
	v := &x.Visits[m.draw.r.IntN(len(x.Visits))]
	if v.Arm != nil && m.draw.chance(0.2) {
		v.Arm = nil
		return
	}
	v.Arm = m.draw.arm(*x, *v)
}

// scale multiplies all times of faults and visits by one factor.
func (m mutator) scale(x *Script) {
	by := math.Exp((m.draw.r.Float64() - 0.5) * 2 * math.Log(2))
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

// times multiplies the times that are not zero.
func times(by float64, list ...*time.Duration) {
	for _, t := range list {
		if *t > 0 {
			*t = round(time.Duration(by * float64(*t)))
		}
	}
}

// cross takes over the faults, the visits or the crowd of another script.
func (m mutator) cross(x *Script, other Script) {
	other = other.Clone()
	switch m.draw.r.IntN(4) {
	case 0:
		x.Crowd = other.Crowd
	case 1:
		x.Visits = other.Visits
	case 2:
		x.Faults = other.Faults
	default:
		for _, in := range other.Faults {
			if len(x.Faults) < mostFaults && m.draw.chance(0.5) {
				in.As, in.After, in.Until = "", nil, nil
				x.Faults = append(x.Faults, in)
			}
		}
		for _, v := range other.Visits {
			if len(x.Visits) < mostVisits && m.draw.chance(0.5) {
				x.Visits = append(x.Visits, v)
			}
		}
	}
}
