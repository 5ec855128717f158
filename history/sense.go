package history

import (
	"fmt"
	"slices"
	"time"
)

// Sense follows the events of one process and refuses those that cannot have happened: an event that only another
// process may record, an outcome of no operation, a grant that was never given. A history of such events passes
// every checksum and proves nothing.
//
// It asks no more than docs/protocol.md asks of a client. Where events were dropped, events without a beginning
// pass: such a run is unknown anyway. A process that was killed sent everything up to its end in order, so its
// events have their beginning.
type Sense struct {
	process string
	locks   int
	shared  bool  // the run has shared mode
	reenter bool  // the run has re-entries
	lease   int64 // ns; 0: not known
	by      writer
	client  int // its index

	seq   uint32
	time  int64
	users []*[userPage]userSense
	given grants
	gaps  bool // events were dropped
}

// modeNames are the modes of an event.
var modeNames = [2]string{"exclusive", "shared"}

// NewSense begins with the first event of the process that the header names.
func NewSense(h Header) *Sense {
	s := &Sense{process: h.Process, locks: len(h.Locks), shared: !h.Exclusive, lease: h.LeaseNS, by: byResource}
	s.reenter = h.Reentrant
	if client, ok := ClientOf(h.Process); ok {
		s.by, s.client = byClient, client
	} else if h.Process == Engine {
		s.by = byEngine
	}
	return s
}

// Observe takes the process's next event. An error is a *Nonsense; nothing may be asked after it.
func (s *Sense) Observe(e *Event) error {
	if why := s.place(e); why != nil {
		return why
	}
	s.seq, s.time = e.Seq, e.Time
	if e.Kind == Dropped {
		s.gaps = true
	}
	if s.by != byClient {
		return nil
	}
	switch {
	case e.Phase == Invoke:
		return s.begin(e)
	case e.Kind.isOperation():
		return s.end(e)
	case e.Kind.ofGrant():
		return s.news(e)
	}
	return nil
}

// place checks an event by itself, and against the one before it.
func (s *Sense) place(e *Event) error {
	var rule rule
	if e.Kind.Known() {
		rule = rules[e.Kind]
	}
	switch {
	case e.Seq != s.seq+1:
		return s.refuse(e, "its seq is %d, and that of the event before is %d", e.Seq, s.seq)
	case e.Time < 0 || e.Time > maxTime:
		return s.refuse(e, "its time is %d: no time of CLOCK_MONOTONIC in ns", e.Time)
	case e.Time < s.time:
		return s.refuse(e, "its time is %d, and that of the event before is %d", e.Time, s.time)
	case rule.by&s.by == 0:
		return s.refuse(e, "%s does not report that", writerNames[s.by])
	case rule.phases&set(e.Phase) == 0:
		return s.refuse(e, "its kind has no such phase")
	case s.by == byClient && e.User.Client() != s.client:
		return s.refuse(e, "its user is not one of %s", s.process)
	case int(e.Lock) >= s.locks && (e.Lock > 0 || e.Kind.hasLock()):
		return s.refuse(e, "its lock has number %d, and the run has %d locks", e.Lock, s.locks)
	case e.Mode > 1:
		return s.refuse(e, "its mode is %d: want 0 (exclusive) or 1 (shared)", e.Mode)
	case e.Mode == 1 && !s.shared:
		return s.refuse(e, "its mode is shared, but nothing in the run requests that")
	case (e.Kind == Reenter || e.Kind == Leave) && !s.reenter:
		return s.refuse(e, "nothing in the run requests a re-entry")
	case e.Kind.explains() && (e.Op == 0 || e.Op >= e.Seq):
		return s.refuse(e, "its op is %d: want the op of an event before", e.Op)
	case e.Code == CodeConditional && (e.Kind != EffectWrite || e.Phase != Ok && e.Phase != Fail):
		return s.refuse(e, "its code is %q: only the effect of a write has that", CodeName(e.Code))
	case isCause(e.Code) != (e.Kind == Reason):
		return s.refuse(e, "its code is %q: a reason must have a cause, other events none", CodeName(e.Code))
	case e.Op != e.Seq && !e.Kind.explains() && (e.Phase == Invoke || !e.Kind.isOperation()):
		return s.refuse(e, "its op is %d: want its own seq", e.Op)
	case e.Kind == Dropped && e.Value < 1:
		return s.refuse(e, "its value is %d: want the number of events that were dropped", e.Value)
	}
	return nil
}

// begin takes an invoke.
func (s *Sense) begin(e *Event) error {
	if e.Kind.ofGrant() {
		if why := s.unknown(e); why != "" {
			return s.refuse(e, "%s", why)
		}
	}
	u := s.user(e.User)
	if had := u.has(e.Lock); e.Kind == ReleaseUnheld && had != 0 {
		return s.refuse(e, "its user has that lock in hand, by grant %d: want a release", had)
	}
	if len(u.open) == maxOpen {
		return s.refuse(e, "its user has begun %d operations that have no outcome", maxOpen)
	}
	if why := u.depth(e); why != "" && !s.gaps {
		return s.refuse(e, "%s", why)
	}
	u.open = append(u.open, operation{op: e.Op, lock: e.Lock, kind: e.Kind, mode: e.Mode, grant: e.Grant, time: e.Time})
	if e.Kind == Release {
		u.drop(e.Lock, e.Grant)
	}
	return nil
}

// end takes an outcome.
func (s *Sense) end(e *Event) error {
	o, ok := s.user(e.User).end(e.Op)
	switch {
	case !ok && !s.gaps:
		return s.refuse(e, "its op is %d, but its user has no open invoke with it", e.Op)
	case ok && (o.kind != e.Kind || o.lock != e.Lock):
		return s.refuse(e, "its op is %d, which is the %v of lock %d", e.Op, o.kind, o.lock)
	case ok && e.Kind == Acquire && o.mode != e.Mode:
		return s.refuse(e, "its mode is %s, but its invoke requested %s", modeNames[e.Mode], modeNames[o.mode])
	case ok && e.Kind != Acquire && o.grant != e.Grant:
		return s.refuse(e, "its grant is %d, and that of its invoke is %d", e.Grant, o.grant)
	case e.Phase != Ok:
		return nil
	case e.Kind == Acquire:
		return s.granted(e, o.time)
	case e.Kind == Reenter:
		u := s.user(e.User)
		u.entries = append(u.entries, heldGrant{e.Grant, e.Lock})
		return s.valid(e)
	case e.Kind == Renew:
		return s.valid(e)
	}
	return nil
}

// granted takes an acquire ok. asked is the time of its invoke, 0 where that was dropped.
func (s *Sense) granted(e *Event, asked int64) error {
	u := s.user(e.User)
	switch had := u.has(e.Lock); {
	case e.Grant != e.Op:
		return s.refuse(e, "its grant is %d: want its op, %d", e.Grant, e.Op)
	case e.Op >= e.Seq: // where its invoke was dropped
		return s.refuse(e, "its op is %d: want the op of an event before", e.Op)
	case e.Value < asked || e.Value > e.Time || e.Value == 0 && e.Time > 0:
		return s.refuse(e, "its value is %d: want the send time of the granted request, from %d to %d", e.Value, asked, e.Time)
	case had != 0 && !s.gaps:
		return s.refuse(e, "its user already has that lock in hand, by grant %d", had)
	}
	if err := s.valid(e); err != nil {
		return err
	}
	u.take(e.Lock, e.Op)
	s.given.add(e.Op, ownerOf(e))
	return nil
}

// valid checks the end of a validity. Left out, it would entitle nobody, and no double grant could be found; beyond the
// lease, it would make a right lock grant twice.
func (s *Sense) valid(e *Event) error {
	switch {
	case e.Valid == ValidEndless || e.Valid == ValidUnknown:
	case e.Valid <= 0 || e.Valid > maxTime:
		return s.refuse(e, "its valid is %d or missing: want a time, %q or %q", e.Valid, wordEndless, wordUnknown)
	case s.lease > 0 && e.Valid > e.Time && e.Valid-e.Time > s.lease:
		return s.refuse(e, "its valid is %v after it: grants of the run end at most %v after their request; for a lock with its own lease, that is the run's backend.ttl", time.Duration(e.Valid-e.Time), time.Duration(s.lease))
	}
	return nil
}

// news takes what the client learned of a grant.
func (s *Sense) news(e *Event) error {
	if why := s.unknown(e); why != "" {
		return s.refuse(e, "%s", why)
	}
	if e.Kind == Lost {
		s.user(e.User).drop(e.Lock, e.Grant)
		return nil
	}
	return s.valid(e)
}

// unknown says why the grant of e was never given to its user; "" where it was, or may have been.
func (s *Sense) unknown(e *Event) string {
	switch {
	case s.gaps || s.given.has(e.Grant, ownerOf(e)):
		return ""
	case e.Grant == 0:
		return "it has no grant: want the op of its acquire"
	}
	return fmt.Sprintf("its grant is %d, but no acquire with that op granted the lock to its user", e.Grant)
}

// unheard tells whether the grant of e may have been given although the history lacks its ok: the process was
// killed, or dropped its last events.
func (s *Sense) unheard(e *Event) bool {
	asked := slices.ContainsFunc(s.user(e.User).open, func(o operation) bool {
		return o.op == e.Grant && o.kind == Acquire && o.lock == e.Lock
	})
	return e.Grant == 0 || e.Grant > s.seq || asked
}

func (s *Sense) refuse(e *Event, format string, args ...any) error {
	return nonsense(s.process, e, format, args...)
}
