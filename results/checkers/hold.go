package checkers

import (
	"cmp"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// maxRenewals bounds the renewals that a hold keeps as proof: the latest ones.
const maxRenewals = 4

// span is a stretch of time: from <= t < until.
type span struct{ from, until int64 }

// hold is one hold as far as it is known. It is entitled within its spans and before its end.
type hold struct {
	user   history.User
	grant  uint32
	lock   uint16
	mode   uint8
	token  uint64
	issued int64
	start  int64           // acquire ok
	end    int64           // release invoke, loss or death; forever while it is open
	valid  int64           // the latest end of its validity, as an event told it
	clock  *history.Header // of its client; nil where it is the run's
	spans  []span

	ok       history.Event
	renewals []history.Event
	over     history.Event // what ended it; KindNone while it is open
	ended    int64         // when the service was last certain of its session; 0 while nothing tells that this is over
	fresh    bool          // it was entitled when it began
	told     bool          // an event told its validity

	at     int    // its place among the open holds of its lock
	pairs  []pair // exclusion only: overlaps with holds that ended before this one
	pinned bool   // somebody keeps it: it is not used again for another hold

	lost int64 // late news only: when another user's grant showed that it was gone; 0: nothing did

	late      *bool // exclusion only: it was counted among those that outlived their validity; nil while nobody asked
	contested bool  // exclusion only: another user asked for the lock or held it meanwhile
	touched   bool  // stale writes only: the resource served it
	saw       int64 // stale writes only: how many writes had been applied there when the resource served it last
}

// notHeld tells whether a code says that the service certainly has the grant no more.
func notHeld(code uint8) bool { return code == history.CodeNotHeld || code == history.CodeLost }

// conflict tells whether two holds exclude each other.
func conflict(a, b uint8) bool { return a == 0 || b == 0 }

// latest is the latest that a time of the hold can be, by its client's clock; earliest the earliest.
func (h *hold) latest(t int64) int64   { return results.Late(h.clock, t) }
func (h *hold) earliest(t int64) int64 { return results.Early(h.clock, t) }

// entitled tells whether the hold's validity covers the whole of [from, until], whatever ended the hold.
func (h *hold) entitled(from, until int64) bool {
	for _, s := range h.spans {
		if h.latest(s.from) <= from && until < h.earliest(s.until) {
			return true
		}
	}
	return false
}

// maybeEntitled reports whether the hold's validity may cover a moment within [from, until], whatever ended the hold.
func (h *hold) maybeEntitled(from, until int64) bool {
	return slices.ContainsFunc(h.spans, func(s span) bool { return h.earliest(s.from) <= until && from < h.latest(s.until) })
}

// mayLast reports whether the hold may be entitled beyond t, by what is known so far and whatever its clock's error.
func (h *hold) mayLast(t int64) bool { return len(h.spans) > 0 && h.latest(h.until()) > t }

// until is the end of the last stretch in which the hold was entitled; 0 where it never was.
func (h *hold) until() int64 {
	if n := len(h.spans); n > 0 {
		return h.spans[n-1].until
	}
	return 0
}

// overAt is when the end of the hold was known; forever where it was not. The death of a holder is seen after its
// hold ended.
func (h *hold) overAt() int64 {
	if h.over.Kind == history.KindNone {
		return results.Forever
	}
	return h.over.Time
}

// before tells whether a came before b by time alone. One of two orders proves it:
//   - a was in hand before b's request was sent
//   - a was over when b came into hand, and b was entitled then: a service that keeps its promise cannot have
//     granted a after b
//
// The second order is the one that works in a queue, where every request is older than the grant before it. Example:
// A and B both ask at 0 s. A is granted the lock at 1 s and releases at 2 s, and B is granted it at 2.1 s. B's
// request is older than A's grant, yet B is later. A b that came into hand when its validity was over is left out:
// it may be the late answer to a request that was granted before a's.
func before(a, b *hold) bool {
	if a.latest(a.start) < b.earliest(b.issued) {
		return true
	}
	return b.fresh && a.latest(a.overAt()) <= b.earliest(b.start) && a.latest(a.start) < b.earliest(b.start)
}

// maybeBefore tells whether a may have come before b by time alone, as far as it is known at now: it is before's answer where the clocks are
// right, and else what before would say at best. An order that lies within the clocks' errors is none.
func maybeBefore(a, b *hold, now int64) bool {
	if a.clock == nil && b.clock == nil {
		return before(a, b)
	}
	over := min(a.overAt(), now) // what is told of its end may be under way
	return a.earliest(a.start) < b.latest(b.issued) || a.earliest(over) <= b.latest(b.start) && a.earliest(a.start) < b.latest(b.start)
}

// grantValidity opens the first span.
func (h *hold) grantValidity(valid int64) {
	h.valid, h.told = valid, valid != history.ValidUnknown
	if h.told && valid > h.start {
		h.spans, h.fresh = append(h.spans, span{h.start, valid}), true
	}
}

// renewValidity takes a new end of the validity, learned at t. One that is learned after the old end leaves a gap,
// in which the holder was not entitled. A shorter one takes back what was promised, even for the past; then cut is
// its time, else forever.
//
// Example: a grant at 0 s is valid until 2 s. A renewal learned at 1 s makes that 3 s. One learned at 4 s, valid
// until 6 s, leaves the holder not entitled from 3 s to 4 s. One learned at 5 s, valid until 4.5 s, leaves [4 s, 4.5
// s) of the second stretch.
func (h *hold) renewValidity(t, valid int64) (cut int64) {
	h.valid = valid
	if valid == history.ValidUnknown {
		return h.clip(t)
	}
	h.told = true
	n := len(h.spans)
	switch {
	case n > 0 && valid < h.spans[n-1].until:
		return h.clip(valid)
	case n > 0 && t <= h.spans[n-1].until:
		h.spans[n-1].until = valid
	case valid > t:
		h.spans = append(h.spans, span{t, valid})
	}
	return results.Forever
}

// clip ends the validity at t.
func (h *hold) clip(t int64) int64 {
	for n := len(h.spans); n > 0 && h.spans[n-1].from >= t; n-- {
		h.spans = h.spans[:n-1]
	}
	if n := len(h.spans); n > 0 {
		h.spans[n-1].until = min(h.spans[n-1].until, t)
	}
	return t
}

// ref is the hold as it is drawn.
func (h *hold) ref() results.HoldRef {
	r := results.HoldRef{
		User: h.user, Grant: h.grant, Issued: h.issued, Start: h.start, End: h.end, Valid: h.valid, Token: h.token,
	}
	if h.end == results.Forever {
		r.End = 0
	}
	return r
}

// proof is the events that made, renewed and ended the hold.
func (h *hold) proof() []history.Event {
	es := append([]history.Event{h.ok}, h.renewals...)
	if h.over.Kind != history.KindNone {
		es = append(es, h.over)
	}
	return es
}

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
	watch  holdWatcher
	users  byUser[[]*hold] // the open holds of a user
	locks  [][]*hold       // the open holds of a lock
	clocks results.Clocks
	early  []history.Event // of the engine, whose grants are told of later by clocks that err
	dead   map[int]int64   // clients that gave no last word: when the last of their events came
	lost   []lostClient    // those of them whose end nobody saw and that had more to tell, the next one first
	free   []*hold
	reuse  bool
	worst  int64 // the largest error of a hold's start so far
}

func newTracker(run results.Run, w holdWatcher) *tracker {
	t := &tracker{watch: w, clocks: run.Clocks(), locks: make([][]*hold, len(run.Locks)), dead: map[int]int64{}, lost: lostClients(run)}
	for _, c := range deadClients(run) {
		t.dead[c] = 0
	}
	return t
}

// observe takes the next event. Operations that open, renew or end no hold are passed over.
func (t *tracker) observe(e *history.Event) {
	for len(t.lost) > 0 && t.lost[0].last < e.Time {
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

// lose ends the holds of a client at its last event: up to then they are certain. What became of them is not known, so none of them counts as over, and
// another hold is not later for that.
func (t *tracker) lose(l lostClient) {
	for _, u := range t.users.client(l.client) {
		for len(*u) > 0 {
			t.close((*u)[0], l.last, nil)
		}
	}
}

// hear notes that a killed client was still alive.
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
	h.issued, h.start, h.end, h.ok = e.Value, e.Time, results.Forever, *e
	if h.clock = t.clocks.Of(e.User); h.clock != nil {
		t.worst = max(t.worst, h.clock.Error(h.start))
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
	for i := range t.early {
		if x := t.early[i]; x.User == h.user && x.Grant == h.grant {
			t.observe(&x)
		}
	}
}

// maxEarly bounds what is kept for grants to come: the latest.
const maxEarly = 1 << 8

// keepEarly keeps what the engine tells of a grant before the grant itself, which only clocks that err can do, for as long as they err. Example:
// the service was last certain to stand by a grant at 116.000 ms, and by its client's clock it came into hand at 116.004 ms. Passed over, the
// end would leave the grant valid for ever.
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

// fresh returns an empty hold, a used one where holds are reused.
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
	valid := e.Valid
	switch {
	case e.Kind == history.Ended:
		h.ended, h.fresh = e.Time, h.fresh && valid > h.start
	case h.ended > 0 && h.earliest(e.Time) <= h.ended: // it may have been learned before: it takes the end not back
		valid = min(valid, h.valid)
	}
	if cut := h.renewValidity(e.Time, valid); cut != results.Forever {
		t.watch.takenBack(h, cut)
	}
}

// heldUntil is when e ends a hold. A dead holder certainly held only until it was last known to live, which the Value
// of its death tells.
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

// leave takes h out of the open holds of its lock; the last of them gets its place.
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

// finish ends the holds that no event ended. Those of a killed client end at its last sign of life, which is
// certain; the others are still held.
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
		t.close(h, at(h), nil)
	}
}

// overstay is how long a hold, or an effect of it, lasted beyond the end of its validity.
type overstay struct {
	user       history.User
	lock       uint16
	start, end int64 // ns: of the stay
	late       int64 // ns: how long it lasted beyond the validity
	n          int64 // how many violations it alone explains
}

// overstayed measures by how much a hold had outlived its validity at until. The stay begins with the request, because
// validity is counted from there. It is late by 0, and has neither begin nor end, where nothing can excuse it: the hold
// never ended, its validity is not known, or it was not over.
func overstayed(h *hold, until int64) overstay {
	o := overstay{user: h.user, lock: h.lock}
	valid := h.until()
	if valid == 0 {
		valid = h.valid
	}
	if valid == history.ValidUnknown || until == results.Forever || valid >= until {
		return o
	}
	o.start, o.end, o.late = h.start, until, until-valid
	if h.issued > 0 {
		o.start = min(o.start, h.issued)
	}
	return o
}

// excused tells whether the stay would have ended within its validity if no process had stood still that it depends
// on: the holder's own, the resource, which answers it, and in a run by steps the engine, which tells it to go on.
func excused(run results.Run, o overstay) (results.Standstill, bool) {
	own := clientName(o.user.Client())
	x := run.Still.Longest(o.start, o.end, func(process string) bool {
		_, client := history.ClientOf(process)
		return process == own || !client && (process != history.Engine || run.Directed)
	})
	return x, x.Total > o.late
}

// standingStill names the process whose standstill alone explains how long h stayed. It ends a witness's sentence.
func standingStill(run results.Run, h *hold, until int64) string {
	if why, ok := excused(run, overstayed(h, until)); ok {
		return "; " + why.Text(run)
	}
	return ""
}
