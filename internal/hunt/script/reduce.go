package script

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/workloads"
)

// Size returns the size of a script.
func (s Space) Size(x Script) Size {
	l := layOut(x)
	steps := l.steps()
	out := Size{
		Faults: len(x.Faults), Users: x.Crowd.Clients*max(x.Crowd.Users, 1) + len(x.users()),
		Steps: len(l.schedule) + len(steps), Parts: x.Crowd.parts() + count(x.TTL > 0),
	}
	for _, step := range steps {
		if strings.HasPrefix(step, "{await: elapsed") {
			out.Times++
		}
	}
	for _, m := range l.moments {
		out.Takes += m.at
	}
	if x.Crowd.Clients > 0 {
		out.Times++
		out.Takes += x.For + x.Crowd.Hold
	}
	for _, in := range x.Faults {
		out.Parts += len(pairsOf(in.Keys))
		if len(l.schedule) > 0 {
			out.Times += count(true, in.For > 0)
			out.Takes += in.At + in.For
		}
	}
	for _, v := range x.Visits {
		out.Faults += count(v.Arm != nil)
		out.Parts += count(v.Shared, v.Patience > 0, v.Close, v.Lock > 0)
	}
	return out
}

// parts counts what could be left out of a crowd.
func (c Crowd) parts() int {
	return count(c.Locks > 1, c.Think > 0, c.Timeout > 0, c.Renew, c.Shared > 0, c.Hold > 0)
}

func count(list ...bool) (n int) {
	for _, x := range list {
		if x {
			n++
		}
	}
	return n
}

// Less reports whether a is smaller than b.
func (a Size) Less(b Size) bool {
	return cmp.Or(cmp.Compare(a.Faults, b.Faults), cmp.Compare(a.Users, b.Users), cmp.Compare(a.Steps, b.Steps),
		cmp.Compare(a.Parts, b.Parts), cmp.Compare(a.Times, b.Times), cmp.Compare(a.Takes, b.Takes)) < 0
}

// briefest is the shortest load of a shrunk script.
const briefest = 250 * time.Millisecond

// Reductions lists valid scripts that are smaller than x, in the order in which to try them:
//   - a shorter load, which makes all later tries cheaper;
//   - half of the faults and visits;
//   - without single faults and visits;
//   - without the crowd, or with a few visits in its place;
//   - fewer users;
//   - without parts of what is left: all of them, then each;
//   - shorter times, and times turned into awaits.
//
// It is a function of the space and the script.
func (s Space) Reductions(x Script) []Script {
	r := reducer{space: s, of: x, size: s.Size(x), seen: map[string]bool{}}
	r.loads()
	r.halves()
	r.singles()
	r.crowd()
	r.numbers()
	r.parts()
	r.times()
	r.events()
	return r.out
}

// reducer collects the smaller forms of a script.
type reducer struct {
	space Space
	of    Script
	size  Size
	out   []Script
	seen  map[string]bool // as JSON
}

// try adds a changed script if it is smaller and can be run.
func (r *reducer) try(change func(*Script)) {
	x := r.of.Clone()
	change(&x)
	x = r.space.fit(x, briefest)
	text, err := json.Marshal(x)
	nobody := len(x.Visits) == 0 && x.Crowd.Clients == 0
	if err != nil || nobody || r.seen[string(text)] || !r.space.Size(x).Less(r.size) {
		return
	}
	r.seen[string(text)] = true
	if r.space.Check(x) == nil {
		r.out = append(r.out, x)
	}
}

// halves drops the first or the second half of the faults, of the visits, or all of either.
func (r *reducer) halves() {
	r.try(func(x *Script) { x.Faults, x.Visits = nil, nil })
	r.try(func(x *Script) { x.Faults = nil })
	r.try(func(x *Script) { x.Visits = nil })
	if n := len(r.of.Faults); n > 2 {
		r.try(func(x *Script) { x.Faults = x.Faults[n/2:] })
		r.try(func(x *Script) { x.Faults = x.Faults[:n/2] })
	}
	if n := len(r.of.Visits); n > 2 {
		r.try(func(x *Script) { x.Visits = x.Visits[n/2:] })
		r.try(func(x *Script) { x.Visits = x.Visits[:n/2] })
	}
}

// loads ends the load a half or a quarter earlier.
func (r *reducer) loads() {
	if r.of.Crowd.Clients > 0 {
		for _, cut := range []time.Duration{r.of.For / 2, r.of.For / 4} {
			r.try(func(x *Script) {
				x.For -= cut
				x.Faults = slices.DeleteFunc(x.Faults, func(in Injection) bool { return in.At >= x.For })
				x.Visits = slices.DeleteFunc(x.Visits, func(v Visit) bool { return v.At >= x.For })
			})
		}
	}
}

// crowd drops the crowd, or replaces it by a few users that each ask once and keep what they get.
func (r *reducer) crowd() {
	if r.of.Crowd.Clients == 0 || len(r.of.Faults) == 0 && len(r.of.Visits) == 0 {
		return
	}
	r.try(func(x *Script) { x.Crowd = Crowd{} })
	from := time.Duration(0)
	for i, v := range r.of.Visits {
		if i == 0 || v.At < from {
			from = v.At
		}
	}
	for _, n := range []int{1, 2, 3} {
		for _, apart := range []time.Duration{least, r.of.For / 5} {
			r.try(func(x *Script) {
				locks := x.Crowd.Locks
				x.Crowd = Crowd{}
				for k := range n {
					x.Visits = append(x.Visits, Visit{User: x.nextUser(), At: from + time.Duration(k+1)*apart})
				}
				for i := range x.Visits {
					if x.Visits[i].Lock >= locks {
						x.Visits[i].Lock = 0
					}
				}
			})
		}
	}
}

// nextUser returns the first name that no visit has.
func (x Script) nextUser() string {
	users := x.users()
	for c := 'A'; ; c++ {
		if !slices.Contains(users, string(c)) {
			return string(c)
		}
	}
}

// singles drops one fault or one visit.
func (r *reducer) singles() {
	for i := range r.of.Faults {
		r.try(func(x *Script) { x.Faults = slices.Delete(x.Faults, i, i+1) })
	}
	for i := range r.of.Visits {
		r.try(func(x *Script) { x.Visits = slices.Delete(x.Visits, i, i+1) })
	}
}

// parts drops what a visit does beside its acquire, keys of faults, and optional parts of the crowd.
func (r *reducer) parts() {
	r.try(func(x *Script) {
		c := x.Crowd
		x.Crowd = Crowd{Clients: c.Clients, Users: c.Users, Locks: min(c.Locks, 1), Hold: c.Hold}
		for i, v := range x.Visits {
			x.Visits[i] = Visit{User: v.User, At: v.At, Hold: v.Hold, Arm: v.Arm, After: v.After, Until: v.Until}
		}
	})
	r.try(func(x *Script) { x.TTL = 0 })
	for i := range r.of.Visits {
		for _, change := range []func(v *Visit){
			func(v *Visit) { v.Arm = nil }, func(v *Visit) { v.Write = 0 }, func(v *Visit) { v.Renew = 0 },
			func(v *Visit) { v.Cancel = 0 }, func(v *Visit) { v.Close = false },
			func(v *Visit) { v.Hold, v.Until = 0, nil }, func(v *Visit) { v.Patience = 0 },
			func(v *Visit) { v.Shared = false }, func(v *Visit) { v.Lock = 0 },
		} {
			r.try(func(x *Script) { change(&x.Visits[i]) })
		}
		if a := r.of.Visits[i].Arm; a != nil && !a.Die {
			r.try(func(x *Script) { x.Visits[i].Arm.Wait, x.Visits[i].Arm.Until = 0, nil })
		}
	}
	for i, in := range r.of.Faults {
		pairs := pairsOf(in.Keys)
		for k := range pairs {
			r.try(func(x *Script) { x.Faults[i].Keys = join(slices.Delete(slices.Clone(pairs), k, k+1)) })
		}
		r.try(func(x *Script) { x.Faults[i].For, x.Faults[i].Until = 0, nil })
	}
	for _, change := range []func(c *Crowd){
		func(c *Crowd) { c.Renew = false }, func(c *Crowd) { c.Shared = 0 }, func(c *Crowd) { c.Timeout = 0 },
		func(c *Crowd) { c.Think = 0 }, func(c *Crowd) { c.Locks = 1 }, func(c *Crowd) { c.Hold = 0 },
	} {
		r.try(func(x *Script) { change(&x.Crowd) })
	}
}

// numbers reduces the number of users.
func (r *reducer) numbers() {
	c := r.of.Crowd
	for _, n := range [][2]int{
		{1, 1},
		{2, 1},
		{1, 2},
		{c.Clients / 2, c.Users},
		{c.Clients, c.Users / 2},
		{c.Clients - 1, c.Users},
		{c.Clients, c.Users - 1},
	} {
		if n[0] > 0 && n[1] > 0 && c.Clients > 0 {
			r.try(func(x *Script) { x.Crowd.Clients, x.Crowd.Users = n[0], n[1] })
		}
	}
	for i, v := range r.of.Visits { // one user for two visits
		for _, u := range r.of.users() {
			if u < v.User {
				r.try(func(x *Script) { x.Visits[i].User = u })
			}
		}
	}
}

// times closes the gaps between consecutive actions, from the longest on, or halves them.
func (r *reducer) times() {
	at := []time.Duration{0, r.of.For}
	for _, m := range layOut(r.of).moments {
		at = append(at, m.at)
	}
	for _, in := range r.of.Faults {
		at = append(at, in.At, min(in.At+in.For, r.of.For))
	}
	slices.Sort(at)
	at = slices.Compact(at)
	type gap struct{ from, to time.Duration }
	var gaps []gap
	for i := range at[1:] {
		if at[i+1]-at[i] > least {
			gaps = append(gaps, gap{at[i], at[i+1]})
		}
	}
	slices.SortStableFunc(gaps, func(a, b gap) int { return cmp.Compare(b.to-b.from, a.to-a.from) })
	for _, part := range []time.Duration{1, 2} {
		for _, g := range gaps {
			rest := least
			if part > 1 {
				rest = round((g.to - g.from) / part)
			}
			cut := g.to - g.from - rest
			r.try(func(x *Script) {
				x.warp(func(t time.Duration) time.Duration {
					switch {
					case t <= g.from:
						return t
					case t < g.to:
						return min(t, g.from+rest)
					}
					return t - cut
				})
			})
		}
	}
	for _, part := range []time.Duration{4, 2} {
		r.try(func(x *Script) { x.Crowd.Hold /= part })
	}
}

// warp maps all times of a script by a monotonic function.
func (x *Script) warp(f func(time.Duration) time.Duration) {
	span := func(from time.Duration, length *time.Duration) {
		if *length > 0 {
			*length = max(f(from+*length)-f(from), least)
		}
	}
	for i := range x.Faults {
		in := &x.Faults[i]
		span(in.At, &in.For)
		in.At = f(in.At)
	}
	for i := range x.Visits {
		v := &x.Visits[i]
		if v.Arm != nil {
			span(v.At+v.callAt(v.Arm.Before), &v.Arm.Wait)
		}
		for _, t := range []*time.Duration{&v.Patience, &v.Hold, &v.Cancel, &v.Renew, &v.Write} {
			span(v.At, t)
		}
		v.At = f(v.At)
	}
	x.For = f(x.For)
}

// callAt returns when a visit makes a call, counted from its acquire.
func (v Visit) callAt(before string) time.Duration {
	return map[string]time.Duration{release: v.Hold, renew: v.Renew, write: v.Write}[before]
}

// mostCauses is how many causes are tried for one time.
const mostCauses = 8

// events turns times into awaits of what came before them: the longest waits first, and for each the nearest causes.
func (r *reducer) events() {
	l := layOut(r.of)
	type wait struct {
		moment
		long   time.Duration
		causes []Await
	}
	var waits []wait
	for i, m := range l.moments {
		if m.where == nil || m.after != nil {
			continue
		}
		before := time.Duration(0)
		if i > 0 {
			before = l.moments[i-1].at
		}
		waits = append(waits, wait{m, m.at - before, r.causes(m.at)})
	}
	if len(l.schedule) > 0 { // with their first await the faults become steps
		for i, in := range r.of.Faults {
			m := moment{at: in.At, where: func(x *Script) **Await { return &x.Faults[i].After }}
			waits = append(waits, wait{m, in.At, r.causes(in.At)})
		}
	}
	slices.SortStableFunc(waits, func(a, b wait) int { return cmp.Compare(b.long, a.long) })
	for _, w := range waits {
		for _, a := range w.causes[:min(len(w.causes), mostCauses)] {
			r.try(func(x *Script) {
				for i := range x.Faults {
					if r.of.name(i) == a.Of {
						x.Faults[i].As = a.Of
					}
				}
				*w.where(x) = &a
			})
		}
	}
}

// causes lists what a script can wait for that happens before a time, the latest first.
func (r *reducer) causes(before time.Duration) []Await {
	type cause struct {
		at time.Duration
		Await
	}
	var list []cause
	for _, v := range r.of.Visits {
		if v.At >= before {
			continue
		}
		list = append(list, cause{v.At, Await{Kind: "event", Event: "acquire ok", User: v.User, Lock: v.Lock}})
		if r.space.Expires {
			list = append(list, cause{v.At, Await{Kind: "validity-over", User: v.User, Lock: v.Lock}})
		}
		if a := v.Arm; a != nil && v.At+v.callAt(a.Before) < before {
			list = append(list, cause{v.At + v.callAt(a.Before), Await{Kind: "point", User: v.User, Point: a.Point}})
		}
		if r.space.Stored {
			list = append(list, cause{v.At, Await{Kind: "fact", Node: history.Service, Fact: history.FactHolder + workloads.LockName(v.Lock), Is: "none"}})
		}
	}
	for i, in := range r.of.Faults {
		k := r.space.kinds[in.Use]
		as := r.of.name(i)
		if in.At < before && k.Counts {
			list = append(list, cause{in.At, Await{Kind: "bitten", Of: as}})
		}
		if in.At < before && strings.HasPrefix(in.On, "leader") {
			list = append(list, cause{in.At, Await{Kind: "led", Of: as}})
		}
	}
	slices.SortStableFunc(list, func(a, b cause) int { return cmp.Compare(b.at, a.at) })
	var out []Await
	for _, c := range list {
		if !slices.Contains(out, c.Await) {
			out = append(out, c.Await)
		}
	}
	return out
}
