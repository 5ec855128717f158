package script

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
)

// normal makes a script valid: everything begins before the end, a user that died does nothing more, and every named
// thing exists. It removes parts, and adds none.
func (s Space) normal(x Script) Script { return s.fit(x, s.Shortest) }

// fit is normal with another shortest load.
func (s Space) fit(x Script, shortest time.Duration) Script {
	x = x.Clone()
	x.For = min(max(round(x.For), shortest), s.Longest)
	last := x.For - round(x.For/8) // what begins at the very end shows nothing
	bound := func(t *time.Duration) {
		if *t = min(*t, 2*s.Longest); *t > 0 {
			*t = round(*t)
		}
	}
	fitVisits(&x, last, bound)
	users := x.users()
	x.Faults = slices.DeleteFunc(x.Faults, func(in Injection) bool {
		return isUser(in.On) && !slices.Contains(users, in.On) || x.Crowd.Clients == 0 && len(users) == 0
	})
	for i := range x.Faults {
		in := &x.Faults[i]
		if x.Crowd.Clients == 0 && onHolder(in.On) { // there may be none for long
			in.On = users[0]
		}
		in.At = min(in.At, last)
		if bound(&in.For); in.Until == nil && x.End == nil && in.At+in.For >= x.For {
			in.For = 0 // it is healed at the end in any case
		}
	}
	x.Faults = slices.DeleteFunc(x.Faults, x.hitsDead)
	const most = 4 // each may move what the other has moved
	for range most {
		before := slices.Clone(x.Faults)
		awake(&x, last, s.kinds)
		reachHolders(&x)
		if slices.Equal(before, x.Faults) {
			break
		}
	}
	slices.SortStableFunc(x.Faults, func(a, b Injection) int { return cmp.Compare(a.At, b.At) })
	dropLost(&x)
	return x
}

// hitsDead reports whether an injection would hit a user that died at a point, or is about to.
func (x Script) hitsDead(in Injection) bool {
	return slices.ContainsFunc(x.Visits, func(v Visit) bool {
		dies := v.Arm != nil && v.Arm.Die
		return dies && (in.On == v.User || in.On == "clients") && in.At+afterwards > v.At+v.callAt(v.Arm.Before)
	})
}

// fitVisits does the same for the visits.
func fitVisits(x *Script, last time.Duration, bound func(*time.Duration)) {
	slices.SortStableFunc(x.Visits, func(a, b Visit) int { return cmp.Compare(a.At, b.At) })
	dead := map[string]bool{}
	x.Visits = slices.DeleteFunc(x.Visits, func(v Visit) bool {
		gone := dead[v.User]
		dead[v.User] = gone || v.Arm != nil && v.Arm.Die
		return gone
	})
	for i := range x.Visits {
		v := &x.Visits[i]
		v.At = min(v.At, last)
		for _, t := range []*time.Duration{&v.Patience, &v.Hold, &v.Cancel, &v.Renew, &v.Write} {
			bound(t)
		}
		if v.Lock >= max(x.Crowd.Locks, 1) {
			v.Lock = 0
		}
		if v.Arm != nil {
			bound(&v.Arm.Wait)
			if !v.makes(v.Arm.Before) {
				v.Arm = nil
			}
		}
	}
}

// afterwards is how long it takes until an injection has its receipt, or a server is ready again.
const afterwards = 800 * time.Millisecond

// awake moves faults away from times in which they would not bite, or could not be observed: when their targets do
// not run, or do not answer.
func awake(x *Script, last time.Duration, kinds map[string]chaos.Kind) {
	for i := range x.Faults {
		in := &x.Faults[i]
		for j, other := range x.Faults {
			end := other.At + other.For
			if other.For == 0 {
				end = untilOver(*x, other, kinds)
			}
			early, late := in.At+afterwards <= other.At, in.At > end
			if i == j || early || late || !meets(in.On, other.On) || !hides(kinds, other, *in) {
				continue
			}
			if in.At = other.At - afterwards; in.At < 0 {
				in.At = min(end+afterwards, last)
			}
		}
	}
}

// untilOver returns when an injection without an end ends: at the end of the run, or soon if it does not last.
func untilOver(x Script, in Injection, kinds map[string]chaos.Kind) time.Duration {
	k := kinds[in.Use]
	if f, err := newFault(k, in.Keys); err == nil && !k.Lasts(f) {
		return in.At + afterwards
	}
	return x.For
}

// hides reports whether one fault prevents another from being observed on the same node.
func hides(kinds map[string]chaos.Kind, one, other Injection) bool {
	k, of := kinds[one.Use], kinds[other.Use]
	f, err := newFault(k, one.Keys)
	g, failed := newFault(of, other.Keys)
	_, linked := f.(chaos.Linked)
	_, both := g.(chaos.Linked)
	switch {
	case err != nil || failed != nil:
		return false
	case k.Kills:
		return true
	case k.Stops:
		return !of.Stops
	}
	return linked && both // each would change the datagrams by which the other is measured
}

// meets reports whether two targets are likely to have a node in common.
func meets(a, b string) bool {
	many := func(on string) bool { return on == "all" || on == "majority" || on == "clients" }
	return onClients(a) == onClients(b) && (a == b || many(a) || many(b))
}

// onClients reports whether a target contains only clients.
func onClients(on string) bool { return on == "clients" || onHolder(on) || isUser(on) }

// onHolder reports whether a target is the client that holds a lock.
func onHolder(on string) bool { return strings.HasPrefix(on, "holder") }

// reachHolders gives a fault at a holder time to find one: it hits the first grant after its time.
func reachHolders(x *Script) {
	for i := range x.Faults {
		if in := &x.Faults[i]; onHolder(in.On) && x.Crowd.Clients > 0 {
			in.At = min(in.At, x.For/2)
			x.Crowd.Hold = min(x.Crowd.Hold, round(x.For/6))
		}
	}
}

// isUser reports whether a target is the user of a visit: no node and no keyword begins with a capital.
func isUser(on string) bool { return on != "" && strings.ToUpper(on[:1]) == on[:1] }

// dropLost removes awaits for events that no longer exist.
func dropLost(x *Script) {
	users := x.users()
	names := map[string]bool{}
	for _, in := range x.Faults {
		names[in.As] = in.As != ""
	}
	lost := func(a *Await) *Await {
		switch {
		case a == nil, a.User != "" && !slices.Contains(users, a.User), a.Of != "" && !names[a.Of]:
			return nil
		}
		return a
	}
	x.End = lost(x.End)
	for i := range x.Faults {
		in := &x.Faults[i]
		in.After, in.Until = lost(in.After), lost(in.Until)
	}
	for i := range x.Visits {
		v := &x.Visits[i]
		v.After, v.Until = lost(v.After), lost(v.Until)
		if v.Arm != nil {
			v.Arm.Until = lost(v.Arm.Until)
		}
	}
}
