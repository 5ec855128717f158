package results

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// holdWatcher is told of what happens to holds.
type holdWatcher interface {
	// began is called when the hold is among the open ones of its lock.
	began(h *hold)
	// takenBack is called when a shorter validity, from cut on, was learned.
	takenBack(h *hold, cut int64)
	// ended is called when the hold is no longer among the open ones of its lock.
	ended(h *hold)
}

// tracker follows the holds of all users from acquire ok to release invoke, loss or death.
type tracker struct {
	watch holdWatcher
	users byUser[[]*hold] // the open holds of a user
	locks [][]*hold       // the open holds of a lock
	errs  []int64         // by client: how wrong its clock may be
	dead  map[int]int64   // clients that were killed: when the last of their events came
	free  []*hold
	reuse bool
	worst int64 // the largest of errs
}

func newTracker(run Run, w holdWatcher) *tracker {
	t := &tracker{watch: w, locks: make([][]*hold, len(run.Locks)), dead: map[int]int64{}}
	for _, p := range run.Processes {
		if c, ok := history.ClientOf(p.Process); ok && p.ErrorNS > 0 {
			t.errs = append(t.errs, make([]int64, max(0, c+1-len(t.errs)))...)
			t.errs[c] = p.ErrorNS
			t.worst = max(t.worst, p.ErrorNS)
		}
	}
	for _, c := range deadClients(run) {
		t.dead[c] = 0
	}
	return t
}

// observe takes the next event. Those of operations that open, renew or end no hold are passed over.
func (t *tracker) observe(e *history.Event) {
	if len(t.dead) > 0 {
		t.hear(e)
	}
	switch e.Kind {
	case history.Acquire:
		if e.Phase == history.Ok {
			t.begin(e)
		}
	case history.Release:
		if e.Phase == history.Invoke {
			t.end(e)
		}
	case history.Renew:
		if e.Phase == history.Ok {
			t.renew(e)
		}
	case history.Renewed, history.Ended:
		t.renew(e)
	case history.Lost, history.Dead:
		t.end(e)
	default:
	}
}

// hear notes that a client that is known to be killed was still alive.
func (t *tracker) hear(e *history.Event) {
	switch e.Kind {
	case history.Acquire, history.Release, history.Renew, history.Check, history.Read, history.Write, history.Renewed, history.Lost:
		if _, ok := t.dead[e.User.Client()]; ok {
			t.dead[e.User.Client()] = e.Time
		}
	default:
	}
}

func (t *tracker) begin(e *history.Event) {
	h := t.fresh()
	h.user, h.grant, h.lock, h.mode, h.token = e.User, e.Op, e.Lock, e.Mode, e.Token
	h.issued, h.start, h.end, h.ok = e.Value, e.Time, forever, *e
	if c := e.User.Client(); c < len(t.errs) {
		h.err = t.errs[c]
	}
	h.grantValidity(e.Valid)
	u := t.users.at(e.User)
	*u = append(*u, h)
	for int(e.Lock) >= len(t.locks) {
		t.locks = append(t.locks, nil)
	}
	h.at = len(t.locks[e.Lock])
	t.locks[e.Lock] = append(t.locks[e.Lock], h)
	t.watch.began(h)
}

// fresh returns an empty hold, an old one where holds are used again.
func (t *tracker) fresh() *hold {
	n := len(t.free)
	if n == 0 {
		return &hold{}
	}
	h := t.free[n-1]
	t.free = t.free[:n-1]
	*h = hold{spans: h.spans[:0], renewals: h.renewals[:0], pairs: h.pairs[:0]}
	return h
}

// open finds an open hold by user and grant.
func (t *tracker) open(u history.User, grant uint32) *hold {
	for _, h := range *t.users.at(u) {
		if h.grant == grant {
			return h
		}
	}
	return nil
}

func (t *tracker) renew(e *history.Event) {
	h := t.open(e.User, e.Grant)
	if h == nil {
		return
	}
	if len(h.renewals) == maxRenewals {
		h.renewals = slices.Delete(h.renewals, 0, 1)
	}
	h.renewals = append(h.renewals, *e)
	if e.Kind == history.Ended && e.Valid <= h.start {
		h.fresh = false
	}
	if cut := h.renewValidity(e.Time, e.Valid); cut != forever {
		t.watch.takenBack(h, cut)
	}
}

// end closes the hold that e names; a death or a loss without a grant closes all that the user has. A dead holder is
// certain to have held only until it was last known to live, which Value of its death tells.
func (t *tracker) end(e *history.Event) {
	at := e.Time
	if e.Kind == history.Dead && e.Value > 0 {
		at = min(at, e.Value)
	}
	if e.Grant == 0 && e.Kind != history.Release {
		for u := t.users.at(e.User); len(*u) > 0; {
			t.close((*u)[0], at, e)
		}
		return
	}
	if h := t.open(e.User, e.Grant); h != nil {
		t.close(h, at, e)
	}
}

func (t *tracker) close(h *hold, at int64, e *history.Event) {
	h.end = max(at, h.start)
	if e != nil {
		h.over = *e
		h.fresh = h.fresh && e.Time > h.start // that the service had ended it by then may be told after its end
	}
	u := t.users.at(h.user)
	*u = without(*u, h)
	t.leave(h)
	t.watch.ended(h)
	if t.reuse && !h.pinned {
		t.free = append(t.free, h)
	}
}

// leave takes h out of the open holds of its lock, of which the last one gets its place.
func (t *tracker) leave(h *hold) {
	open := t.locks[h.lock]
	last := len(open) - 1
	open[h.at] = open[last]
	open[h.at].at = h.at
	open[last] = nil
	t.locks[h.lock] = open[:last]
}

// without takes h out of list and keeps the order of the others.
func without(list []*hold, h *hold) []*hold {
	i := slices.Index(list, h)
	copy(list[i:], list[i+1:])
	list[len(list)-1] = nil
	return list[:len(list)-1]
}

// finish ends the holds that no event ended: those of a killed client at its last sign of life, which is certain; the
// others are still held.
func (t *tracker) finish() {
	var rest []*hold
	for _, list := range t.locks {
		rest = append(rest, list...)
	}
	at := func(h *hold) int64 {
		if seen, ok := t.dead[h.user.Client()]; ok {
			return max(seen, h.start)
		}
		return forever
	}
	slices.SortStableFunc(rest, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.start, b.start), cmp.Compare(a.user, b.user))
	})
	for _, h := range rest {
		t.close(h, at(h), nil)
	}
}
