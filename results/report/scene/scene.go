// Package scene chooses the part of a run that is worth a picture, and reads it from the run directory: the events of
// a few users, with the faults and the answers of servers around them.
package scene

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// A Scene is the part of a run that is drawn and described. It has all that the users of a story did, or the
// surroundings of one of these: a witness, the longest time without a grant, a handoff of a contended lock.
type Scene struct {
	Names
	Report results.Report
	Faults []history.Fault
	Seen   Observations

	Whole   bool             // it has all that its users did
	Worst   *results.Witness // its subject; nil: none that would be worth a title
	Cause   *results.Witness // its cause, if the judge found one
	Gap     *results.Witness // the time for which a lock could not be taken, if that is the subject
	Handoff *Handoff         // if that is the subject
	Holds   []results.HoldRef
	Events  []history.Event // of these users, in the order of time
	Reasons Reasons         // why something was refused or given up, from the deciding process
	Crowd   []history.Event // grants of the same locks to other users
}

// New reads the run directory and returns the part to draw; nil without one.
func New(dir string, r results.Report, env results.Env) (*Scene, error) {
	sc := &Scene{Names: Names{Env: env}, Report: r}
	if w, cause, ok := choose(r); ok {
		sc.Worst, sc.Cause = &w, cause
	}
	var err error
	if sc.Faults, err = results.ReadFaults(dir); err != nil {
		return nil, err
	}
	sc.Faults = slices.DeleteFunc(sc.Faults, func(f history.Fault) bool {
		return f.Receipt.Status == history.NotMade || f.Receipt.Status == history.NotInstalled || f.Traits.Idle
	})
	if sc.Seen, err = results.ReadObserved(dir); err != nil {
		return nil, err
	}
	read := reader{dir: dir, scene: sc}
	err = read.read()
	if err == nil && len(sc.Users) == 0 && slices.ContainsFunc(TopicsOf(r), func(x Topic) bool { return x.Count }) {
		err = read.glimpse()
	}
	if err != nil || len(sc.Users) == 0 {
		return nil, err
	}
	return sc, nil
}

// Lock returns the name of the lock that the scene is about; "" without one.
func (sc *Scene) Lock() string {
	if sc.Worst != nil && sc.Worst.Lock != "" {
		return sc.Worst.Lock
	}
	for _, e := range sc.Events {
		if e.Kind == history.Acquire {
			return sc.LockName(e.Lock)
		}
	}
	return ""
}

// Which adds the name of the lock to a word, in a scene of more than one lock.
func (sc *Scene) Which(word string, lock uint16) string {
	for _, e := range sc.Events {
		if e.Kind == history.Acquire && e.Lock != lock {
			return word + " " + sc.LockName(lock)
		}
	}
	return word
}

// SessionEnded reports whether a hold without an end was over because its session was not observed standing any
// later.
func (sc *Scene) SessionEnded(h results.HoldRef) bool {
	return slices.ContainsFunc(sc.Events, func(e history.Event) bool {
		return e.Kind == history.Ended && e.User == h.User && e.Grant == h.Grant &&
			(e.Valid == h.Valid || e.Time <= h.Start)
	})
}

// Touched reports whether the resource was involved: a user read or wrote there, or a fault hit it.
func (sc *Scene) Touched() bool {
	return slices.ContainsFunc(sc.Events, IsEffect) || slices.ContainsFunc(sc.Faults, func(f history.Fault) bool {
		return slices.ContainsFunc(f.Targets, sc.IsResource)
	})
}

// span returns the time of the scene's events.
func (sc *Scene) span() (from, to int64) {
	if len(sc.Events) == 0 {
		return 0, 0
	}
	last := sc.Events[len(sc.Events)-1].Time
	if sc.Gap != nil {
		last = max(last, sc.Gap.To)
	}
	return sc.Events[0].Time, last
}

// Nodes lists the servers that need a lane: a fault hit them, they took the lead, they granted what is drawn, or they
// took writes when asked continuously.
func (sc *Scene) Nodes() []string {
	var out []string
	asked := sc.Seen.Asked()
	add := func(node string) {
		if node != "" && !slices.Contains(out, node) && (len(asked) == 0 || slices.Contains(asked, node)) {
			out = append(out, node)
		}
	}
	from, to := sc.span()
	for _, f := range sc.Faults {
		if f.Start > to || f.End != 0 && f.End < from {
			continue
		}
		for _, t := range f.Targets {
			if sc.IsServer(t) {
				add(t)
			}
		}
		if f.Lead != nil {
			add(f.Lead.Old)
			add(f.Lead.New)
		}
	}
	for _, h := range sc.Holds {
		for _, n := range sc.Seen.Keepers(h) {
			add(n)
		}
	}
	for _, o := range sc.Seen {
		if strings.HasPrefix(o.Fact, history.FactTakes) && o.Answer == "true" {
			add(o.Node)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// Answered removes the servers whose answers never reached the client, if the lock recorded which ones did.
func (sc *Scene) Answered(h results.HoldRef, keepers []string) []string {
	r, ok := sc.Reasons[reasonKey{true, h.User, h.Grant}]
	if !ok || r.Code != history.CauseAnsweredBy {
		return keepers
	}
	var out []string
	all := sc.Seen.Asked()
	for i, node := range all {
		if int64(len(all)) == r.Value && i < 64 && r.Token&(1<<i) != 0 {
			out = append(out, node)
		}
	}
	return out
}

// ReasonOf returns why an operation of a client ended as it did, or why the resource refused an effect. A store that
// is no process of lockquake's returns its reason only to the client that asked.
func (sc *Scene) ReasonOf(e history.Event) (history.Event, bool) {
	if !IsEffect(e) {
		r, ok := sc.Reasons[reasonKey{true, e.User, e.Op}]
		return r, ok
	}
	if r, ok := sc.Reasons[reasonKey{false, e.User, e.Op}]; ok {
		return r, ok
	}
	kind := history.Write
	if e.Kind == history.EffectRead {
		kind = history.Read
	}
	var found history.Event
	ok := false
	for _, x := range sc.Events {
		if x.Kind == kind && x.Phase == history.Invoke && x.User == e.User && x.Grant == e.Grant && x.Time <= e.Time {
			found, ok = sc.Reasons[reasonKey{true, x.User, x.Op}]
		}
	}
	return found, ok
}

// GrantReason returns the recorded reason for a grant; its code is CodeNone without one.
func (sc *Scene) GrantReason(u history.User, grant uint32) history.Event {
	return sc.Reasons[reasonKey{true, u, grant}]
}
