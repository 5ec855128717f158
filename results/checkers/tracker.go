package checkers

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// follower is a checker that follows the holds of a run.
type follower interface {
	// follow is called before the first event; t has the open holds.
	follow(t *tracker) watch
}

// watch has a follower's callbacks. The follower's Observe sees each event before that changes a hold.
type watch struct {
	// began: the hold is among the open ones of its lock.
	began func(h *hold)
	// takenBack: a shorter validity was learned.
	takenBack func(c curtailed)
	// ended: an event ended the hold, and it is no longer among the open ones of its lock.
	ended func(h *hold)
	// effect: the resource served or refused a user, and its hold, if any, is known.
	effect func(x *effect)
	// after takes each event after its change of holds.
	after func(e *history.Event)
	// last: the history has ended, and holds without an ending event are open.
	last func(t *tracker)
	// left takes each hold without an ending event, after last. It has an end if its client was killed.
	left func(h *hold)
}

// curtailed is a hold with a shorter validity, and the time from which the old one was revoked.
type curtailed struct {
	hold *hold
	cut  int64
}

// seat is the place of a checker among the followers. It gets nothing after it crashed.
type seat struct {
	watch
	checker results.Checker
	crashed func(why any)
	gone    bool
}

func (s *seat) crash(why any) {
	s.gone = true
	s.crashed(why)
}

// tell calls f, if there is one.
func tell[T any](s *seat, f func(T), x T) {
	if f != nil && !s.gone {
		guarded(s, f, x)
	}
}

func guarded[T any](s *seat, f func(T), x T) {
	defer func() {
		if why := recover(); why != nil {
			s.crash(why)
		}
	}()
	f(x)
}

// show passes an event to the checkers. It is a tell for the most frequent call, with one guard for all of them.
func show(seats []*seat, e *history.Event) {
	for len(seats) > 0 {
		seats = seats[showUpTo(seats, e):]
	}
}

// showUpTo returns how many have seen the event: all, or those up to one that crashed.
func showUpTo(seats []*seat, e *history.Event) (n int) {
	defer func() {
		if why := recover(); why != nil {
			seats[n].crash(why)
			n++
		}
	}()
	for ; n < len(seats); n++ {
		if s := seats[n]; !s.gone {
			s.checker.Observe(e)
		}
	}
	return n
}

// holdsOnce is the stream of a run's holds.
var holdsOnce = &results.StreamKind{New: func(run results.Run) results.Stream { return newTracker(run) }}

// tracker tracks the holds of all users from acquire ok to release invoke, loss or death, for all checkers of a run.
//
// It reuses a hold for another one after its end, unless a follower has pinned it.
type tracker struct {
	run     results.Run
	seats   []*seat
	afters  []*seat              // those that want each event after its change of holds
	effects *effects             // nil if no follower wants them
	users   users.Table[[]*hold] // the open holds of a user
	locks   [][]*hold            // the open holds of a lock
	freed   []int64              // by lock: when the latest hold ended by an event, or by the loss of its client
	clocks  results.Clocks
	early   []history.Event    // of the engine, for grants that inexact clocks report later
	dead    map[int]int64      // clients without a final report: time of their last event
	lost    []users.LostClient // those of them with an unobserved end and events still to come, the next one first
	free    []*hold
	worst   int64 // the largest error of a hold's start so far
}

func newTracker(run results.Run) *tracker {
	t := &tracker{
		run: run, clocks: run.Clocks(), locks: make([][]*hold, len(run.Locks)),
		freed: make([]int64, len(run.Locks)), dead: map[int]int64{},
		lost: users.LostClients(run),
	}
	for _, c := range users.DeadClients(run) {
		t.dead[c] = 0
	}
	return t
}

// Follow adds a checker.
func (t *tracker) Follow(c results.Checker, crashed func(why any)) {
	s := &seat{watch: c.(follower).follow(t), checker: c, crashed: crashed}
	if s.after != nil {
		t.afters = append(t.afters, s)
	}
	if t.seats = append(t.seats, s); s.effect != nil && t.effects == nil {
		t.effects = newEffects(t.run, func(x *effect) {
			for _, s := range t.seats {
				tell(s, s.effect, x)
			}
		})
	}
}

// Observe passes the next event to the followers, and changes the holds.
func (t *tracker) Observe(e *history.Event) {
	show(t.seats, e)
	if t.effects != nil {
		t.effects.observe(e)
	}
	t.observe(e)
	for _, s := range t.afters {
		tell(s, s.after, e)
	}
}

// Finish ends the remaining holds, and pairs the waiting effects with holds.
func (t *tracker) Finish() {
	for _, s := range t.seats {
		tell(s, s.last, t)
	}
	t.finish()
	if t.effects != nil {
		t.effects.finish()
	}
}

// observe takes the next event. It skips operations that open, renew or end no hold.
func (t *tracker) observe(e *history.Event) {
	for len(t.lost) > 0 && t.lost[0].Last < e.Time {
		t.lose(t.lost[0])
		t.lost = t.lost[1:]
	}
	if len(t.dead) > 0 {
		t.hear(e)
	}
	if len(t.clocks) > 0 {
		t.keepEarly(e)
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
	case history.Renew, history.Reenter:
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

// lose ends the holds of a client at its last event: up to then they are certain. Their fate is unknown, so none of
// them counts as over, and no other hold is later because of them.
func (t *tracker) lose(l users.LostClient) {
	for _, u := range t.users.Client(l.Client) {
		for len(*u) > 0 {
			t.close((*u)[0], l.Last, nil)
		}
	}
}

// hear records that a killed client was still alive.
func (t *tracker) hear(e *history.Event) {
	switch e.Kind {
	case history.Acquire, history.Release, history.Renew, history.Check, history.Read, history.Write, history.Renewed,
		history.Lost, history.Reenter, history.Leave:
		if _, ok := t.dead[e.User.Client()]; ok {
			t.dead[e.User.Client()] = e.Time
		}
	default:
	}
}

func (t *tracker) begin(e *history.Event) {
	h := t.fresh()
	h.user, h.grant, h.lock, h.mode, h.token = e.User, e.Op, e.Lock, e.Mode, e.Token
	if t.run.Permits > 1 { // its holders do not exclude each other in pairs
		h.mode = 1
	}
	h.issued, h.start, h.end, h.ok = e.Value, e.Time, results.Forever, *e
	if h.clock = t.clocks.Of(e.User); h.clock != nil {
		t.worst = max(t.worst, h.clock.Error(h.start))
	}
	h.grantValidity(e.Valid)
	u := t.users.At(e.User)
	*u = append(*u, h)
	for int(e.Lock) >= len(t.locks) {
		t.locks, t.freed = append(t.locks, nil), append(t.freed, 0)
	}
	h.at = len(t.locks[e.Lock])
	t.locks[e.Lock] = append(t.locks[e.Lock], h)
	if t.effects != nil {
		t.effects.began(h)
	}
	for _, s := range t.seats {
		tell(s, s.began, h)
	}
	for i := range t.early {
		if x := t.early[i]; x.User == h.user && x.Grant == h.grant {
			t.observe(&x)
		}
	}
}

// maxEarly bounds the events kept for future grants: the latest ones.
const maxEarly = 1 << 8

// keepEarly keeps, for as long as clocks may err, engine events about a grant that precede the grant itself, which
// only happens with inexact clocks. Example: the service was last certain of a grant at 116.000 ms, and by its
// client's clock it came into hand at 116.004 ms. Skipping the end would leave the grant valid for ever.
func (t *tracker) keepEarly(e *history.Event) {
	clock := t.clocks.Of(e.User)
	if clock == nil || e.Kind != history.Ended && e.Kind != history.Dead || t.open(e.User, e.Grant) != nil {
		return
	}
	t.early = slices.DeleteFunc(t.early, func(x history.Event) bool {
		return x.Time+2*t.clocks.Of(x.User).Error(x.Time) < e.Time
	})
	t.early = append(slices.Delete(t.early, 0, max(0, len(t.early)-maxEarly+1)), *e)
}

// fresh returns an empty hold. It reuses one that has ended if it can.
func (t *tracker) fresh() *hold {
	n := len(t.free)
	if n == 0 {
		return &hold{}
	}
	h := t.free[n-1]
	t.free = t.free[:n-1]
	spans, renewals := h.spans[:0], h.renewals[:0]
	*h = hold{} // in place: a value that has the two would be copied
	h.spans, h.renewals = spans, renewals
	return h
}

// open finds an open hold by user and grant.
func (t *tracker) open(u history.User, grant uint32) *hold {
	for _, h := range *t.users.At(u) {
		if h.grant == grant {
			return h
		}
	}
	return nil
}

// held returns the open holds of a lock.
func (t *tracker) held(lock uint16) []*hold {
	if int(lock) >= len(t.locks) {
		return nil
	}
	return t.locks[lock]
}

// freeSince returns since when no user has had a lock in hand, 0 if none ever had; free is false while one has.
func (t *tracker) freeSince(lock uint16) (since int64, free bool) {
	if int(lock) >= len(t.locks) {
		return 0, true
	}
	return t.freed[lock], len(t.locks[lock]) == 0
}

func (t *tracker) renew(e *history.Event) {
	h := t.open(e.User, e.Grant)
	if h == nil {
		if e.Kind == history.Ended && t.effects != nil {
			t.effects.ended(e)
		}
		return
	}
	if len(h.renewals) == maxRenewals {
		h.renewals = slices.Delete(h.renewals, 0, 1)
	}
	h.renewals = append(h.renewals, *e)
	valid := e.Valid
	switch {
	case e.Kind == history.Ended:
		h.ended, h.fresh = e.Time, h.fresh && valid > h.start
	case h.ended > 0 && h.earliest(e.Time) <= h.ended: // it may have been learned before, and does not revoke the end
		valid = min(valid, h.valid)
	}
	if cut := h.renewValidity(e.Time, valid); cut != results.Forever {
		for _, s := range t.seats {
			tell(s, s.takenBack, curtailed{h, cut})
		}
	}
}

// heldUntil returns when e ends a hold. A dead holder certainly held only until it was last known to live, which is
// the Value of its death.
func heldUntil(e *history.Event) int64 {
	if e.Kind == history.Dead && e.Value > 0 {
		return min(e.Time, e.Value)
	}
	return e.Time
}

// end closes the hold that e names. A death, or a loss that names no grant, closes all holds of the user.
func (t *tracker) end(e *history.Event) {
	at := heldUntil(e)
	if e.Grant == 0 && e.Kind != history.Release {
		for u := t.users.At(e.User); len(*u) > 0; {
			t.close((*u)[0], at, e)
		}
		return
	}
	if h := t.open(e.User, e.Grant); h != nil {
		t.close(h, at, e)
	}
}

// close ends a hold by an event, or without one.
func (t *tracker) close(h *hold, at int64, e *history.Event) {
	t.shut(h, at, e)
	t.freed[h.lock] = max(t.freed[h.lock], h.end)
	for _, s := range t.seats {
		tell(s, s.ended, h)
	}
	t.spare(h)
}

// shut sets the end of a hold, and removes it from the open ones.
func (t *tracker) shut(h *hold, at int64, e *history.Event) {
	h.end = max(at, h.start)
	if e != nil {
		h.over = *e
		h.fresh = h.fresh && e.Time > h.start // the service's earlier end of it may be reported after its own end
	}
	u := t.users.At(h.user)
	*u = without(*u, h)
	t.leave(h)
}

// spare keeps an ended hold for reuse.
func (t *tracker) spare(h *hold) {
	if !h.pinned {
		t.free = append(t.free, h)
	}
}

// leave removes h from the open holds of its lock; the last of them gets its place.
func (t *tracker) leave(h *hold) {
	open := t.locks[h.lock]
	last := len(open) - 1
	open[h.at] = open[last]
	open[h.at].at = h.at
	open[last] = nil
	t.locks[h.lock] = open[:last]
}

// finish ends the remaining holds. Those of a killed client end at its last sign of life, which is certain; the
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
		return results.Forever
	}
	slices.SortStableFunc(rest, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a.start, b.start), cmp.Compare(a.user, b.user))
	})
	for _, h := range rest {
		t.shut(h, at(h), nil)
		for _, s := range t.seats {
			tell(s, s.left, h)
		}
	}
}
