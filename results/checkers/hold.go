package checkers

import (
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
)

// maxRenewals bounds the renewals that a hold keeps as proof: the latest ones.
const maxRenewals = 4

// span is a stretch of time: from <= t < until.
type span struct{ from, until int64 }

// hold is one hold as known so far. It is entitled within its spans and before its end.
type hold struct {
	user   history.User
	grant  uint32
	lock   uint16
	mode   uint8
	token  uint64
	issued int64
	start  int64           // acquire ok
	end    int64           // release invoke, loss or death; forever while it is open
	valid  int64           // the latest reported end of its validity
	clock  *history.Header // of its client; nil if it is the run's
	spans  []span

	ok       history.Event
	renewals []history.Event
	over     history.Event // the event that ended it; KindNone while it is open
	ended    int64         // when the service was last certain of its session; 0 unless its end was reported
	fresh    bool          // it was entitled when it began
	told     bool          // an event reported its validity

	at     int   // its place among the open holds of its lock
	swept  int64 // of a lock with several permits: what began before this is judged
	pinned bool  // a follower keeps it: it is not reused for another hold
}

// notHeld reports whether a code says that the service certainly no longer has the grant.
func notHeld(code uint8) bool { return code == history.CodeNotHeld || code == history.CodeLost }

// conflict reports whether two holds exclude each other.
func conflict(a, b uint8) bool { return a == 0 || b == 0 }

// latest returns the latest possible value of a time of the hold, by its client's clock; earliest the earliest.
func (h *hold) latest(t int64) int64   { return results.Late(h.clock, t) }
func (h *hold) earliest(t int64) int64 { return results.Early(h.clock, t) }

// entitled reports whether the hold's validity covers the whole of [from, until], whatever ended the hold.
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
	return slices.ContainsFunc(h.spans, func(s span) bool {
		return h.earliest(s.from) <= until &&
			from < h.latest(s.until)
	})
}

// mayLast reports whether the hold may be entitled after t, by what is known so far and within its clock's error.
func (h *hold) mayLast(t int64) bool { return len(h.spans) > 0 && h.latest(h.until()) > t }

// until returns the end of the last period in which the hold was entitled; 0 if it never was.
func (h *hold) until() int64 {
	if n := len(h.spans); n > 0 {
		return h.spans[n-1].until
	}
	return 0
}

// overAt returns when the end of the hold was known; forever if it was not. The death of a holder is observed after
// its hold ended.
func (h *hold) overAt() int64 {
	if h.over.Kind == history.KindNone {
		return results.Forever
	}
	return h.over.Time
}

// before reports whether a came before b by time alone. One of two orders proves it:
//   - a was in hand before b's request was sent
//   - a was over when b came into hand, and b was entitled then: a service that keeps its promise cannot have
//     granted a after b
//
// The second order is the one that works in a queue, where every request is older than the grant before it. Example:
// A and B both ask at 0 s. A is granted the lock at 1 s and releases at 2 s, and B is granted it at 2.1 s. B's
// request is older than A's grant, yet B is later. The order does not apply if b came into hand after its validity:
// it may be the late answer to a request that was granted before a's.
func before(a, b *hold) bool {
	if a.latest(a.start) < b.earliest(b.issued) {
		return true
	}
	return b.fresh && a.latest(a.overAt()) <= b.earliest(b.start) && a.latest(a.start) < b.earliest(b.start)
}

// maybeBefore reports whether a may have come before b by time alone, as known at now. With exact clocks it returns
// before's answer, otherwise the answer that before would give at best. An order that lies within the clock errors is
// none.
func maybeBefore(a, b *hold, now int64) bool {
	if a.clock == nil && b.clock == nil {
		return before(a, b)
	}
	over := min(a.overAt(), now) // the report of its end may be on its way
	return a.earliest(a.start) < b.latest(b.issued) || a.earliest(over) <= b.latest(b.start) &&
		a.earliest(a.start) < b.latest(b.start)
}

// grantValidity opens the first span.
func (h *hold) grantValidity(valid int64) {
	h.valid, h.told = valid, valid != history.ValidUnknown
	if h.told && valid > h.start {
		h.spans, h.fresh = append(h.spans, span{h.start, valid}), true
	}
}

// renewValidity takes a new end of the validity, learned at t. If it is learned after the old end, it leaves a gap in
// which the holder was not entitled. A shorter one revokes what was promised, even for the past; then cut is its
// time, else forever.
//
// Example: a grant at 0 s is valid until 2 s. A renewal learned at 1 s makes that 3 s. One learned at 4 s, valid
// until 6 s, leaves the holder not entitled from 3 s to 4 s. One learned at 5 s, valid until 4.5 s, leaves [4 s, 4.5
// s) of the second span.
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

// Pin keeps the hold from being reused for another one.
func (h *hold) Pin() { h.pinned = true }

// Ref returns the hold as it is drawn.
func (h *hold) Ref() results.HoldRef {
	r := results.HoldRef{
		User: h.user, Grant: h.grant, Issued: h.issued, Start: h.start, End: h.end, Valid: h.valid, Token: h.token,
	}
	if h.end == results.Forever {
		r.End = 0
	}
	return r
}

// Proof returns the events that made, renewed and ended the hold.
func (h *hold) Proof() []history.Event {
	es := append([]history.Event{h.ok}, h.renewals...)
	if h.over.Kind != history.KindNone {
		es = append(es, h.over)
	}
	return es
}

// overstayed returns by how much a hold had outlived its validity at until. The stay begins with the request, because
// validity is counted from there. It has lateness 0 and no start or end if nothing can excuse it: the hold never
// ended, its validity is unknown, or it was not over.
func overstayed(h *hold, until int64) evidence.Stay {
	o := evidence.Stay{User: h.user, Lock: h.lock}
	valid := h.until()
	if valid == 0 {
		valid = h.valid
	}
	if valid == history.ValidUnknown || until == results.Forever || valid >= until {
		return o
	}
	o.Start, o.End, o.Late = h.start, until, until-valid
	if h.issued > 0 {
		o.Start = min(o.Start, h.issued)
	}
	return o
}

// standingStill names the process whose standstill alone explains the length of h. It ends a witness's sentence.
func standingStill(run results.Run, h *hold, until int64) string {
	if why, ok := evidence.Excused(run, overstayed(h, until), evidence.Involved); ok {
		return "; " + why.Text(run)
	}
	return ""
}

// aimedAt reports whether a fault was aimed at this very hold.
func aimedAt(run results.Run, h *hold) bool {
	for i := range run.Faults {
		f := &run.Faults[i]
		if f.Grant == h.grant && f.User != nil && *f.User == h.user {
			return true
		}
	}
	return false
}

// without removes h from list and keeps the order of the others.
func without[T comparable](list []T, h T) []T {
	i := slices.Index(list, h)
	copy(list[i:], list[i+1:])
	clear(list[len(list)-1:])
	return list[:len(list)-1]
}
