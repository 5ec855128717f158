package scene

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// reader reads the parts of a scene from a run directory.
type reader struct {
	dir   string
	scene *Scene
}

// read makes the run's most telling scene; without one it has no users.
func (r *reader) read() error {
	sc := r.scene
	if len(sc.Env.People) > 0 {
		if ok, err := r.wholeStory(); ok || err != nil {
			return err
		}
	}
	switch measures := sc.Report.Measures; {
	case sc.Worst != nil && len(sc.Worst.Holds) == 0:
		return r.glimpse()
	case sc.Worst != nil:
		w := betterWitness(r.dir, *sc.Worst, sc.Env)
		sc.Worst, sc.Holds = &w, slices.Clone(w.Holds)
		if sc.Cause != nil {
			sc.Holds = slices.Clone(sc.Cause.Holds)
		}
		return r.around()
	case len(sc.Faults) > 0:
		return r.outage()
	case measures["wakeups_per_handoff"] != nil, measures["requests_per_handoff"] != nil:
		return r.handoffScene()
	}
	return nil
}

// MaxStory is the maximum of its users' events for one story: a longer one is unreadable.
const MaxStory = 2000

// wholeStory makes the scene of everything done by the users that steps name. ok is false if that is too much.
func (r *reader) wholeStory() (ok bool, err error) {
	sc := r.scene
	clients := map[int]bool{}
	for _, node := range sc.Env.People {
		if c, ok := history.ClientOf(node); ok {
			clients[c] = true
		}
	}
	used := map[uint16]bool{}
	var events, crowd []history.Event
	err = r.scan(func(e *history.Event) {
		switch {
		case len(events) > MaxStory:
		case e.Kind > history.EffectWrite && e.Kind != history.Ended || e.Kind == history.KindNone:
		case clients[e.User.Client()] && e.User.Index() == 0:
			used[e.Lock] = used[e.Lock] || e.Kind == history.Acquire
			events = append(events, *e)
		case used[e.Lock] && e.Kind == history.Acquire && e.Phase == history.Ok:
			crowd = append(crowd, *e)
		}
	})
	if err != nil || len(events) > MaxStory {
		return false, err
	}
	sc.Whole, sc.Events, sc.Crowd = true, events, crowd
	sc.Holds = holdsOf(sc.Events)
	for _, e := range sc.Events {
		if !slices.Contains(sc.Users, e.User) {
			sc.Users = append(sc.Users, e.User)
		}
	}
	slices.SortFunc(sc.Users, func(a, b history.User) int { return cmp.Compare(sc.Name(a), sc.Name(b)) })
	return true, nil
}

// around makes the scene of a few holds: all their events, and how many other users got their lock meanwhile.
func (r *reader) around() error {
	sc := r.scene
	slices.SortStableFunc(sc.Holds, func(a, b results.HoldRef) int { return cmp.Compare(a.Start, b.Start) })
	mine, users := map[key]bool{}, map[history.User]bool{}
	var from, to int64
	for i, h := range sc.Holds {
		mine[key{h.User, h.Grant}], users[h.User] = true, true
		if i == 0 || h.Start < from {
			from = h.Start
		}
		to = max(to, h.Start, h.End)
		if !slices.Contains(sc.Users, h.User) {
			sc.Users = append(sc.Users, h.User)
		}
	}
	if sc.Worst != nil {
		to = max(to, sc.Worst.To)
	}
	var first, last []history.Event // of repeated events
	err := r.scan(func(e *history.Event) {
		grant := e.Grant
		if e.Kind == history.Acquire {
			grant = e.Op
		}
		switch {
		case mine[key{e.User, grant}] && repeats(e.Kind):
			if len(first) < MaxStory/2 {
				first = append(first, *e)
			} else if last = append(last, *e); len(last) > MaxStory {
				last = append(last[:0], last[MaxStory/2:]...)
			}
		case mine[key{e.User, grant}], e.Kind == history.Dead && users[e.User]:
			sc.Events = append(sc.Events, *e)
		case e.Kind == history.Acquire && e.Phase == history.Ok && sc.LockName(e.Lock) == sc.Lock() && e.Time >= from &&
			e.Time <= to:
			sc.Crowd = append(sc.Crowd, *e)
		}
	})
	sc.Events = append(sc.Events, first...)
	sc.Events = append(sc.Events, last[max(0, len(last)-MaxStory/2):]...) // those in between are not drawn anyway
	slices.SortStableFunc(sc.Events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	return err
}

// repeats reports whether a hold may have any number of events of this kind.
func repeats(k history.Kind) bool {
	switch k {
	case history.Read, history.Write, history.EffectRead, history.EffectWrite, history.Renew, history.Renewed,
		history.Reenter, history.Leave,
		history.Check:
		return true
	}
	return false
}

// outage makes the scene of the longest time for which a lock could not be taken: the last hold before and the first
// one after.
func (r *reader) outage() error {
	sc := r.scene
	w := unavailable(sc.Report)
	if w == nil {
		return nil
	}
	var last, next *history.Event
	err := r.scan(func(e *history.Event) {
		if e.Kind != history.Acquire || e.Phase != history.Ok || sc.LockName(e.Lock) != w.Lock {
			return
		}
		one := *e
		switch {
		case e.Time <= w.From:
			last = &one
		case e.Time >= w.To && next == nil:
			next = &one
		}
	})
	if err != nil || last == nil || next == nil {
		return err
	}
	sc.Gap = w
	return r.grants(last, next)
}

// glimpse makes the scene of two users at work, for witnesses without holds. Its time is that of the shown witness,
// else of the first one of a count that the scenario names, else the middle of the run.
func (r *reader) glimpse() error {
	sc := r.scene
	until := sc.Env.Start + (sc.Env.End-sc.Env.Start)/2
	for _, x := range TopicsOf(sc.Report) {
		if w := x.Witness(sc.Report, func(results.Witness) bool { return false }); w != nil {
			until = w.To
			break
		}
	}
	if sc.Worst != nil {
		until = sc.Worst.To
	}
	var first, next *history.Event
	err := r.scan(func(e *history.Event) {
		if e.Kind != history.Acquire || e.Phase != history.Ok || first != nil && e.Time > until {
			return
		}
		one := *e
		if next != nil && e.Lock == next.Lock && e.User != next.User {
			first, next = next, &one
		} else if first == nil {
			next = &one
		}
	})
	if err != nil || first == nil {
		return err
	}
	return r.grants(first, next)
}

// handoffScene makes the scene of a contended lock without faults: the handoff of median length.
func (r *reader) handoffScene() error {
	sc := r.scene
	x := newHandoffs()
	if err := r.scan(x.observe); err != nil || len(x.all) == 0 {
		return err
	}
	slices.SortStableFunc(x.all, func(a, b Handoff) int { return cmp.Compare(a.Long(), b.Long()) })
	h := x.all[len(x.all)/2]
	sc.Handoff = &h
	if err := r.grants(&h.Last, &h.next); err != nil {
		return err
	}
	for _, a := range h.asked {
		if len(sc.Users) < 2+maxWaiters && !slices.Contains(sc.Users, a.User) {
			sc.Users, sc.Events = append(sc.Users, a.User), append(sc.Events, a)
		}
	}
	slices.SortStableFunc(sc.Events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	return nil
}

// grants makes the scene of two successive grants: all events of their holds.
func (r *reader) grants(last, next *history.Event) error {
	sc := r.scene
	sc.Holds = []results.HoldRef{refOf(last), refOf(next)}
	if err := r.around(); err != nil {
		return err
	}
	sc.Holds = holdsOf(sc.Events)
	return nil
}

// scan reads the history of a run directory once and calls observe for each event.
func (r *reader) scan(observe func(e *history.Event)) error {
	sc := r.scene
	sc.Reasons = Reasons{}
	return scan(r.dir, sc.Env, func(locks []string) { sc.Locks = locks }, func(process string, e *history.Event) {
		observe(e)
		sc.Reasons.Observe(process, e)
	})
}

// scan reads the history of a run directory once and passes on the names of its locks, and each event.
func scan(
	dir string, env results.Env, locks func([]string), observe func(process string, e *history.Event),
) (err error) {
	log, err := results.OpenLog(dir, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	locks(log.Locks())
	return log.Each(observe)
}
