package results

import (
	"math"

	"github.com/lockquake/lockquake/history"
)

// forever is the end of what has not ended.
const forever int64 = math.MaxInt64

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
	start  int64 // acquire ok
	end    int64 // release invoke, loss or death; forever while it is open
	valid  int64 // the latest end of its validity, as an event told it
	err    int64 // how wrong its process's clock may be
	spans  []span

	ok       history.Event
	renewals []history.Event
	over     history.Event // what ended it; KindNone while it is open
	fresh    bool          // it was entitled when it began

	at     int    // its place among the open holds of its lock
	pairs  []pair // exclusion only: overlaps with holds that ended before this one
	pinned bool   // somebody keeps it: it is not used again for another hold

	contested bool // exclusion only: another user asked for the lock or held it meanwhile
	touched   bool // stale writes only: the resource served it
}

// conflict tells whether two holds exclude each other.
func conflict(a, b uint8) bool { return a == 0 || b == 0 }

// entitled tells whether the hold's validity covers the whole of [from, until], whatever ended the hold.
func (h *hold) entitled(from, until int64) bool {
	for _, s := range h.spans {
		if s.from+h.err <= from && until < later(s.until, -h.err) {
			return true
		}
	}
	return false
}

// until is the end of the last stretch in which the hold was entitled; 0 where it never was.
func (h *hold) until() int64 {
	if n := len(h.spans); n > 0 {
		return h.spans[n-1].until
	}
	return 0
}

// overAt is when the hold's end was seen; forever where it was not. The death of a holder is seen after its hold ended.
func (h *hold) overAt() int64 {
	if h.over.Kind == history.KindNone {
		return forever
	}
	return h.over.Time
}

// before tells whether a came before b by time alone. Either a was in hand before b's request was sent, or a was over when b came
// into hand, entitled: a service that keeps its promise cannot have granted a after b then. The second is what tells in a queue, where
// every request is older than the grant before it. A b that was entitled no more may be the late answer to a request that
// was granted before a's.
func before(a, b *hold) bool {
	if a.start+a.err < b.issued-b.err {
		return true
	}
	return b.fresh && later(a.overAt(), a.err) <= b.start-b.err && a.start+a.err < b.start-b.err
}

// later moves t by d, unless t is forever.
func later(t, d int64) int64 {
	if t == forever {
		return t
	}
	return t + d
}

// grantValidity opens the first span.
func (h *hold) grantValidity(valid int64) {
	h.valid = valid
	if valid != history.ValidUnknown && valid > h.start {
		h.spans, h.fresh = append(h.spans, span{h.start, valid}), true
	}
}

// renewValidity takes a new end of the validity, learned at t. One that comes after the old end leaves a gap: the
// holder could not believe in its grant there. A shorter one takes back what was promised, even for the past; then cut
// is its time, else forever.
func (h *hold) renewValidity(t, valid int64) (cut int64) {
	h.valid = valid
	if valid == history.ValidUnknown {
		return h.clip(t)
	}
	n := len(h.spans)
	switch {
	case n > 0 && valid < h.spans[n-1].until:
		return h.clip(valid)
	case n > 0 && t <= h.spans[n-1].until:
		h.spans[n-1].until = valid
	case valid > t:
		h.spans = append(h.spans, span{t, valid})
	}
	return forever
}

// clip ends every span at t.
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
func (h *hold) ref() HoldRef {
	r := HoldRef{
		User: h.user, Grant: h.grant, Issued: h.issued, Start: h.start, End: h.end, Valid: h.valid, Token: h.token,
	}
	if h.end == forever {
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
