// Package oracle is a second judge, for tests alone: it counts what package results counts, from the definitions, by
// looking at every pair of holds. It is slow and short, and shares nothing with results but the types of a history.
package oracle

import (
	"math"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// forever is the end of what does not end, as a time and as a position.
const forever = math.MaxInt64

// Run is what the oracle is told beside the events.
type Run struct {
	Token      string        // "none", "service" or "home-made"
	Resource   string        // "" where nothing is protected
	Increments bool          // each acknowledged write adds one
	Writes     string        // "sales", "seats", "transfers", "elements" or ""
	Stock      int64         // units of each lock, for sales
	Errors     map[int]int64 // ns: how wrong a client's clock may be, by the client's index
	Dead       map[int]bool  // clients that were killed, by index
}

// span is an interval of time that includes its start and not its end.
type span struct{ from, to int64 }

func (s span) and(o span) span { return span{max(s.from, o.from), min(s.to, o.to)} }

func (s span) empty() bool { return s.from >= s.to }

// narrow takes the clock's error off both ends.
func (s span) narrow(err int64) span {
	if s.to == forever {
		return span{s.from + err, forever}
	}
	return span{s.from + err, s.to - err}
}

type key struct {
	user history.User
	op   uint32
}

// hold is one grant. The names ending in At are positions among the events.
type hold struct {
	history.Event // the acquire ok; Value is when it was issued

	err      int64
	end      int64 // of the hold; forever while open
	over     int64 // when that was said, or forever
	overAt   int
	entitled []span
	askedAt  int
	openAt   int
	goneAt   int // release outcome, loss or death
	touchAt  int // its first effect
	fresh    bool
}

// learn takes what is known at time t of the end of the validity.
func (h *hold) learn(t, valid int64) {
	last := len(h.entitled) - 1
	switch {
	case valid == history.ValidUnknown:
		h.clip(t)
	case last >= 0 && valid < h.entitled[last].to:
		h.clip(valid)
	case last >= 0 && t <= h.entitled[last].to:
		h.entitled[last].to = valid
	case valid > t:
		h.entitled = append(h.entitled, span{t, valid})
	}
}

func (h *hold) clip(t int64) {
	h.entitled = slices.DeleteFunc(h.entitled, func(s span) bool { return s.from >= t })
	if n := len(h.entitled); n > 0 {
		h.entitled[n-1].to = min(h.entitled[n-1].to, t)
	}
}

// held is the hold, and spans are its entitled parts, as they are for certain.
func (h *hold) held() span { return span{h.Time, h.end}.narrow(h.err) }

func (h *hold) spans() []span {
	var ss []span
	for _, s := range h.entitled {
		ss = append(ss, s.narrow(h.err))
	}
	return ss
}

// covers tells whether the hold was certainly entitled from the one time to the other, both included.
func (h *hold) covers(from, to int64) bool {
	return slices.ContainsFunc(h.spans(), func(s span) bool { return s.from <= from && to < s.to })
}

// release is one that was answered, or will be.
type release struct {
	history.Event       // its invoke
	hold          *hold // that it ended, or found over
	ends          bool
	entitled      bool
	ok            int64 // when; forever where it was not answered so
}

// ask is a request for a lock, from its invoke to its outcome.
type ask struct {
	user     history.User
	lock     uint16
	from, to int
}

// refusal says that a hold was not held, at a time at which it still should have been.
type refusal struct {
	hold *hold
	time int64
}

// Judge is one run's.
type judge struct {
	run      Run
	events   []history.Event
	holds    []*hold
	grants   map[key]*hold
	releases map[key]*release
	asked    map[key]*ask
	renewals map[key]*hold
	refusals []refusal
	worst    int64 // the largest error of a clock
}

// Judge returns the counts of a run whose events are in the order of time. A count that does not apply is missing.
func Judge(run Run, events []history.Event) map[string]int64 {
	j := &judge{
		run: run, events: events, grants: map[key]*hold{}, releases: map[key]*release{}, asked: map[key]*ask{}, renewals: map[key]*hold{},
	}
	for _, e := range run.Errors {
		j.worst = max(j.worst, e)
	}
	for i := range events {
		j.read(i, &events[i])
	}
	j.buryDead()
	counts := map[string]int64{}
	j.exclusion(counts)
	j.regressions(counts)
	j.effects(counts)
	j.foreign(counts)
	j.writes(counts)
	j.chances(counts)
	return counts
}

// read takes one event for the holds that it belongs to.
func (j *judge) read(i int, e *history.Event) {
	k, h := key{e.User, e.Op}, j.grants[key{e.User, e.Grant}]
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		j.asked[k] = &ask{e.User, e.Lock, i, forever}
	case e.Kind == history.Acquire:
		if a := j.asked[k]; a != nil {
			a.to = i
		}
		if e.Phase == history.Ok {
			j.open(i, e)
		}
	case e.Kind == history.Release && e.Phase == history.Invoke:
		r := &release{Event: *e, hold: h, ok: forever}
		if h != nil {
			n := len(h.entitled)
			r.Mode, r.ends = h.Mode, h.overAt == forever
			r.entitled = r.ends && n > 0 && (h.entitled[n-1].to == forever || h.entitled[n-1].to+h.err > e.Time)
		}
		j.releases[k] = r
		j.close(i, e, e.Time)
	case e.Kind == history.Release:
		j.answer(i, e, j.releases[k])
	case e.Kind == history.Dead:
		alive := e.Time
		if e.Value > 0 {
			alive = min(alive, e.Value)
		}
		j.close(i, e, alive)
	case e.Kind == history.Lost:
		j.close(i, e, e.Time)
	case e.Kind == history.Renew && e.Phase == history.Fail && (e.Code == history.CodeNotHeld || e.Code == history.CodeLost):
		if h != nil && h.overAt == forever {
			j.refusals = append(j.refusals, refusal{h, e.Time})
		}
	case e.Kind == history.Renew && e.Phase == history.Ok, e.Kind == history.Renewed, e.Kind == history.Ended:
		if h != nil && h.overAt == forever {
			h.learn(e.Time, e.Valid)
		}
		if h != nil && e.Kind == history.Ended && e.Valid <= h.Time {
			h.fresh = false
		}
	}
}

func (j *judge) open(i int, e *history.Event) {
	for _, h := range j.holds {
		if h.User == e.User && h.goneAt > i {
			h.goneAt = i // a user has one at a time; only the intervals that are possible know that
		}
	}
	h := &hold{Event: *e, err: j.run.Errors[e.User.Client()], end: forever, over: forever, overAt: forever, openAt: i, goneAt: forever, touchAt: forever}
	h.Grant, h.askedAt = e.Op, i
	if a := j.asked[key{e.User, e.Op}]; a != nil {
		h.askedAt = a.from
	}
	if h.fresh = e.Valid > e.Time; h.fresh { // unknown is before every time
		h.entitled = []span{{e.Time, e.Valid}}
	}
	j.holds = append(j.holds, h)
	j.grants[key{e.User, e.Op}] = h
}

// close ends the open holds that the event means; after a release's invoke a hold may still be there for the service.
func (j *judge) close(i int, e *history.Event, end int64) {
	for _, h := range j.holds {
		if h.User != e.User || h.Grant != e.Grant && (e.Grant != 0 || e.Kind == history.Release) {
			continue
		}
		if h.overAt == forever {
			h.end, h.over, h.overAt = max(h.Time, end), e.Time, i
			h.fresh = h.fresh && e.Time > h.Time
		}
		if h.goneAt == forever && e.Kind != history.Release {
			h.goneAt = i
		}
	}
}

// answer takes the outcome of a release.
func (j *judge) answer(i int, e *history.Event, r *release) {
	if r == nil {
		return
	}
	if r.hold != nil && r.hold.goneAt == forever {
		r.hold.goneAt = i
	}
	switch {
	case e.Phase == history.Ok:
		r.ok = e.Time
	case e.Phase == history.Fail && (e.Code == history.CodeNotHeld || e.Code == history.CodeLost) && r.ends:
		j.refusals = append(j.refusals, refusal{r.hold, e.Time})
	}
}

// buryDead ends what clients held of whose death no event tells: at their last sign of life.
func (j *judge) buryDead() {
	for _, h := range j.holds {
		if h.overAt != forever || !j.run.Dead[h.User.Client()] {
			continue
		}
		h.end = h.Time
		for _, e := range j.events {
			if e.User.Client() == h.User.Client() && (e.Kind <= history.Write || e.Kind == history.Renewed || e.Kind == history.Lost) {
				h.end = max(h.end, e.Time)
			}
		}
	}
}

// exclusive tells whether two holds are of one lock and not both shared.
func exclusive(a, b *hold) bool { return a.Lock == b.Lock && (a.Mode == 0 || b.Mode == 0) }

// contested tells whether another user asked for the hold's lock or held it meanwhile.
func (j *judge) contested(h *hold) bool {
	for _, a := range j.asked {
		if a.user != h.User && a.lock == h.Lock && a.from < h.overAt && a.to > h.openAt {
			return true
		}
	}
	return slices.ContainsFunc(j.holds, func(k *hold) bool {
		return k.User != h.User && k.Lock == h.Lock && k.openAt < h.overAt && k.overAt > h.openAt
	})
}

// chances counts how often the other counts could have gone up.
func (j *judge) chances(counts map[string]int64) {
	for _, h := range j.holds {
		if j.contested(h) {
			counts["chances:overlapping_holds"]++
			if h.fresh {
				counts["chances:double_grants"]++
			}
		}
		if slices.ContainsFunc(j.holds, func(a *hold) bool { return a.Token > 0 && h.Token > 0 && later(h, a, forever) }) {
			counts["chances:token_regressions"]++
		}
	}
	for _, r := range j.releases {
		if !r.entitled {
			counts["chances:foreign_releases"]++
		}
	}
}

// exclusion counts pairs.
func (j *judge) exclusion(counts map[string]int64) {
	var double, overlapping, possible int64
	for i, a := range j.holds {
		for _, b := range j.holds[:i] {
			if a.User == b.User || !exclusive(a, b) {
				continue
			}
			switch both := a.held().and(b.held()); {
			case bothEntitled(both, a, b):
				double++
			case !both.empty():
				overlapping++
			case a.goneAt > b.askedAt && b.goneAt > a.askedAt:
				possible++
			}
		}
	}
	counts["double_grants"], counts["overlapping_holds"], counts["possible_overlaps"] = double, overlapping, possible
}

func bothEntitled(held span, a, b *hold) bool {
	for _, s := range a.spans() {
		for _, o := range b.spans() {
			if !held.and(s).and(o).empty() {
				return true
			}
		}
	}
	return false
}

// later tells whether b is later than a by time, as far as is known at position now.
func later(b, a *hold, now int) bool {
	if b == a || b.Lock != a.Lock {
		return false
	}
	if b.Value > 0 && a.Time+a.err < b.Value-b.err {
		return true
	}
	known := a.over != forever && a.overAt < now
	return known && exclusive(a, b) && b.fresh && a.over+a.err <= b.Time-b.err && a.Time+a.err < b.Time-b.err
}

func (j *judge) regressions(counts map[string]int64) {
	if j.run.Token == "" || j.run.Token == "none" {
		return
	}
	var n int64
	for _, b := range j.holds {
		if slices.ContainsFunc(j.holds, func(a *hold) bool {
			return a.Token > 0 && b.Token > 0 && later(b, a, forever) && (a.Token > b.Token || a.Token == b.Token && exclusive(a, b))
		}) {
			n++
		}
	}
	counts["token_regressions"] = n
}
