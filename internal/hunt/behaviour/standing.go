package behaviour

import (
	"math"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// most is how many simultaneous or past faults are recorded with one event.
const most = 3

// stood is a fault that bit, as behaviours describe it.
type stood struct {
	name     string // "pause@holder"
	from, to int64  // ns; math.MaxInt64 if it was not healed
	users    []int  // clients that are its targets
	lead     *history.Lead
	kills    bool
}

// standing knows which faults are active.
type standing struct {
	list []stood // those that bit
	made []Bite
}

func newStanding(env results.Env, faults []history.Fault) (s standing) {
	for _, f := range faults {
		role := roleOf(env, f)
		bit := f.Receipt.Status == history.Installed
		b := Bite{Fault: f.Name, Role: role, Made: 1}
		if bit {
			b.Bit = 1
		}
		if s.made = AddBite(s.made, b); !bit {
			continue
		}
		one := stood{
			name: f.Name + "@" + role, from: max(f.Bit, f.Start), to: f.Undo, lead: f.Lead,
			kills: f.Traits != nil && f.Traits.Kills,
		}
		if one.to == 0 {
			one.to = math.MaxInt64
		}
		if f.For == 0 && f.End > 0 && f.Undo == 0 { // over by itself
			one.to = max(one.from, f.End)
		}
		for _, name := range f.Targets {
			if i, client := history.ClientOf(name); client {
				one.users = append(one.users, i)
			}
		}
		s.list = append(s.list, one)
	}
	return s
}

func (s *standing) bites() []Bite { return s.made }

// roleOf returns the role of a fault's targets towards the lock.
func roleOf(env results.Env, f history.Fault) string {
	word, _, _ := strings.Cut(f.Selector, "(")
	switch {
	case f.User != nil:
		return "holder"
	case word == "leader", word == "primary", f.Lead != nil:
		return "leader"
	case word == "followers":
		return "followers"
	}
	role := "server"
	if len(f.Targets) > 0 {
		switch _, client := history.ClientOf(f.Targets[0]); {
		case client:
			role = "client"
		case slices.Contains(env.ResourceNodes, f.Targets[0]):
			role = "resource"
		}
	}
	if len(f.Targets) > 1 {
		role += "s"
	}
	return role
}

// at names the phases of a moment from a user's point of view: the active faults, else the one that ended last, else
// "before".
func (s *standing) at(t int64, u history.User) (phases []string) {
	var over *stood
	for i := range s.list {
		f := &s.list[i]
		switch {
		case t < f.from:
		case t <= f.to:
			phase := "during " + f.name
			if slices.Contains(f.users, u.Client()) {
				phase += " (own)"
			}
			if !slices.Contains(phases, phase) && len(phases) < most {
				phases = append(phases, phase)
			}
		case over == nil || f.to > over.to:
			over = f
		}
	}
	switch {
	case len(phases) > 0:
		slices.Sort(phases)
		return phases
	case over != nil:
		return []string{"after " + over.name}
	}
	return []string{"before"}
}

// border records the holders, and the calls under way, when a fault began or ended.
func (w *watcher) border(f *stood, which string) {
	for _, l := range w.locks {
		w.shows.add("%s %s: %s", f.name, which, l.held(f.users))
		if f.kills && len(f.users) == 0 && l.valid() { // the server's knowledge of the grant may be lost
			w.shows.closer("double_grants", 0.4)
		}
	}
	for c, invoked := range w.calls {
		whose := "another"
		if slices.Contains(f.users, c.user.Client()) {
			whose = "a target"
		}
		w.shows.add("%s %s in the %s of %s user", f.name, which, invoked.Kind, whose)
	}
	if which == "ends" {
		w.shows.add("%s stood %s", f.name, w.shows.since(f.to-f.from))
	}
}

// lead records which server led after a fault aimed at a leader.
func (w *watcher) lead(f *stood) {
	if f.lead == nil || f.lead.New == "" {
		return
	}
	w.shows.add("%s: another leads after %s", f.name, w.shows.since(max(f.lead.Led-f.from, 0)))
	if lag := f.lead.Lag; lag != nil && *lag > 0 {
		w.shows.add("%s: the new leader lacks %s bytes", f.name, bucket(float64(*lag)))
	}
	w.marks = append(w.marks, mark{f.lead.Led, func(w *watcher) {
		for _, l := range w.locks {
			w.shows.add("another leads after %s: %s", f.name, l.held(nil))
			if l.valid() {
				w.shows.closer("double_grants", 0.6)
			}
		}
	}})
}

// point records that a user reached a point of the lock's recipe, or continued from it.
func (w *watcher) point(o history.Observation) {
	i, client := history.ClientOf(o.Node)
	if !client {
		w.shows.add("point %s %s", o.Fact, o.Answer)
		return
	}
	u := history.MakeUser(i, 0) // users named by steps are alone in their process
	if len(w.locks) == 0 {
		w.shows.add("point %s %s: nobody has held", o.Fact, o.Answer)
	}
	for _, l := range w.locks {
		w.shows.add("point %s %s: %s", o.Fact, o.Answer, l.holders(u))
	}
	for c, invoked := range w.calls {
		if c.user != u {
			w.shows.add("point %s %s in the %s of another user", o.Fact, o.Answer, invoked.Kind)
		}
	}
}
