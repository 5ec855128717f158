package report

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// sceneReader reads from a run directory what a scene is made of.
type sceneReader struct {
	dir   string
	scene *scene
}

// read makes the scene of what is best told of the run; it has no users where that is nothing.
func (r *sceneReader) read() error {
	sc := r.scene
	if len(sc.env.People) > 0 {
		if ok, err := r.wholeStory(); ok || err != nil {
			return err
		}
	}
	switch measures := sc.report.Measures; {
	case sc.worst != nil && len(sc.worst.Holds) == 0:
		return r.glimpse()
	case sc.worst != nil:
		w := betterWitness(r.dir, *sc.worst, sc.env)
		sc.worst, sc.holds = &w, slices.Clone(w.Holds)
		if sc.cause != nil {
			sc.holds = slices.Clone(sc.cause.Holds)
		}
		return r.around()
	case len(sc.faults) > 0:
		return r.outage()
	case measures["wakeups_per_handoff"] != nil, measures["requests_per_handoff"] != nil:
		return r.handoffScene()
	}
	return nil
}

// maxStory is how many events of its users can be told as one story: in a longer one nobody finds anything.
const maxStory = 2000

// wholeStory makes the scene of everything that the users did whom the steps name. ok is false where that is too
// much.
func (r *sceneReader) wholeStory() (ok bool, err error) {
	clients := map[int]bool{}
	for _, node := range r.scene.env.People {
		if c, ok := clientNumber(node); ok {
			clients[c] = true
		}
	}
	used := map[uint16]bool{}
	var events, crowd []history.Event
	err = r.scan(func(e *history.Event) {
		switch {
		case len(events) > maxStory:
		case e.Kind > history.EffectWrite && e.Kind != history.Ended || e.Kind == history.KindNone:
		case clients[e.User.Client()] && e.User.Index() == 0:
			used[e.Lock] = used[e.Lock] || e.Kind == history.Acquire
			events = append(events, *e)
		case used[e.Lock] && e.Kind == history.Acquire && e.Phase == history.Ok:
			crowd = append(crowd, *e)
		}
	})
	if err != nil || len(events) > maxStory {
		return false, err
	}
	r.scene.whole, r.scene.events, r.scene.crowd = true, events, crowd
	r.scene.holds = holdsOf(r.scene.events)
	for _, e := range r.scene.events {
		if !slices.Contains(r.scene.users, e.User) {
			r.scene.users = append(r.scene.users, e.User)
		}
	}
	slices.SortFunc(r.scene.users, func(a, b history.User) int { return cmp.Compare(r.scene.name(a), r.scene.name(b)) })
	return true, nil
}

// around makes the scene of a few holds: all that belongs to them, and how many others got their lock meanwhile.
func (r *sceneReader) around() error {
	slices.SortStableFunc(r.scene.holds, func(a, b results.HoldRef) int { return cmp.Compare(a.Start, b.Start) })
	mine, users := map[key]bool{}, map[history.User]bool{}
	var from, to int64
	for i, h := range r.scene.holds {
		mine[key{h.User, h.Grant}], users[h.User] = true, true
		if i == 0 || h.Start < from {
			from = h.Start
		}
		to = max(to, h.Start, h.End)
		if !slices.Contains(r.scene.users, h.User) {
			r.scene.users = append(r.scene.users, h.User)
		}
	}
	if r.scene.worst != nil {
		to = max(to, r.scene.worst.To)
	}
	var first, last []history.Event // of what repeats
	err := r.scan(func(e *history.Event) {
		grant := e.Grant
		if e.Kind == history.Acquire {
			grant = e.Op
		}
		switch {
		case mine[key{e.User, grant}] && repeats(e.Kind):
			if len(first) < maxStory/2 {
				first = append(first, *e)
			} else if last = append(last, *e); len(last) > maxStory {
				last = append(last[:0], last[maxStory/2:]...)
			}
		case mine[key{e.User, grant}], e.Kind == history.Dead && users[e.User]:
			r.scene.events = append(r.scene.events, *e)
		case e.Kind == history.Acquire && e.Phase == history.Ok && r.scene.lockName(e.Lock) == r.scene.lock() && e.Time >= from &&
			e.Time <= to:
			r.scene.crowd = append(r.scene.crowd, *e)
		}
	})
	r.scene.events = append(r.scene.events, first...)
	r.scene.events = append(r.scene.events, last[max(0, len(last)-maxStory/2):]...) // those in between are not drawn anyway
	slices.SortStableFunc(r.scene.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	return err
}

// repeats tells whether a hold may have any number of events of this kind.
func repeats(k history.Kind) bool {
	switch k {
	case history.Read, history.Write, history.EffectRead, history.EffectWrite, history.Renew, history.Renewed,
		history.Check:
		return true
	}
	return false
}

// outage makes the scene of the longest time for which a lock could not be taken: the last hold before and the first
// one after.
func (r *sceneReader) outage() error {
	w := unavailable(r.scene.report)
	if w == nil {
		return nil
	}
	var last, next *history.Event
	err := r.scan(func(e *history.Event) {
		if e.Kind != history.Acquire || e.Phase != history.Ok || r.scene.lockName(e.Lock) != w.Lock {
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
	r.scene.gap = w
	return r.grants(last, next)
}

// glimpse makes the scene of two users at work, for witnesses that are no holds: at the time of the one that is told,
// of the first one of a count that the scenario names, else in the middle of the run.
func (r *sceneReader) glimpse() error {
	until := r.scene.env.Start + (r.scene.env.End-r.scene.env.Start)/2
	for _, x := range topicsOf(r.scene.report) {
		if w := x.witness(r.scene.report, func(results.Witness) bool { return false }); w != nil {
			until = w.To
			break
		}
	}
	if r.scene.worst != nil {
		until = r.scene.worst.To
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

// handoffScene makes the scene of a lock that many want and that nothing happens to: the handoff of median length.
func (r *sceneReader) handoffScene() error {
	x := newHandoffs()
	if err := r.scan(x.observe); err != nil || len(x.all) == 0 {
		return err
	}
	slices.SortStableFunc(x.all, func(a, b handoff) int { return cmp.Compare(a.long(), b.long()) })
	h := x.all[len(x.all)/2]
	r.scene.handoff = &h
	if err := r.grants(&h.last, &h.next); err != nil {
		return err
	}
	for _, a := range h.asked {
		if len(r.scene.users) < 2+maxWaiters && !slices.Contains(r.scene.users, a.User) {
			r.scene.users, r.scene.events = append(r.scene.users, a.User), append(r.scene.events, a)
		}
	}
	slices.SortStableFunc(r.scene.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	return nil
}

// grants makes the scene of two grants, one after the other: all that belongs to their holds.
func (r *sceneReader) grants(last, next *history.Event) error {
	r.scene.holds = []results.HoldRef{refOf(last), refOf(next)}
	if err := r.around(); err != nil {
		return err
	}
	r.scene.holds = holdsOf(r.scene.events)
	return nil
}

// scan reads the history of a run directory once and shows each event.
func (r *sceneReader) scan(observe func(e *history.Event)) error {
	r.scene.reasons = recordedReasons{}
	return scan(r.dir, r.scene.env, func(locks []string) { r.scene.locks = locks }, plainly(observe),
		r.scene.reasons.observe)
}
