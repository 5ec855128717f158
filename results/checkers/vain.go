package checkers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// vainAsk is a user that asks for a lock, again and again.
type vainAsk struct {
	open  history.Event // the acquire that is under way; KindNone: none
	since int64         // the first of those that ended in vain, one after the other
}

// vain keeps how long users asked in vain for a lock that was free for them: of each user and lock the longest time
// beyond a limit.
type vain struct {
	run   results.Run
	kind  string        // of the witnesses
	limit int64         // ns
	most  int64         // ns: a process that stood still for longer explains it, however long it was
	why   func() string // why they should have got it
	found map[results.Place]vainSpan
}

// vainSpan is such a time, and the acquire with which it ended.
type vainSpan struct {
	span
	events []history.Event
}

// add takes a time. end is the outcome of the acquire, or nil.
func (v *vain) add(p results.Place, s span, invoke history.Event, end *history.Event) {
	was, waited := v.found[p], s.until-s.from
	if waited <= v.limit || waited <= was.until-was.from {
		return
	}
	if v.found == nil {
		v.found = map[results.Place]vainSpan{}
	}
	events := []history.Event{invoke}
	if end != nil {
		events = append(events, *end)
	}
	v.found[p] = vainSpan{s, events}
}

// judged is the finding that counts them.
func (v *vain) judged(count string, chances int64) results.Finding {
	list, stays := shortlist{room: results.MaxWitnesses}, []overstay(nil)
	for _, p := range slices.SortedFunc(maps.Keys(v.found), func(a, b results.Place) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Lock, b.Lock))
	}) {
		s := v.found[p]
		waited := s.until - s.from
		stays = append(stays, overstay{
			user: p.User, lock: p.Lock, start: s.from, end: s.until, late: min(waited-v.limit, v.most),
		})
		list.add(proof{
			kind: v.kind, from: s.from, to: s.until, rank: int(waited / 1e6), events: s.events, text: func() string {
				return fmt.Sprintf("%v asked for %s in vain for %.3f ms from %s to %s: %s", p.User, v.run.LockName(p.Lock),
					results.Milli(waited), v.run.MS(s.from), v.run.MS(s.until), v.why())
			},
		})
	}
	f := results.Finding{}.Judged(count, int64(len(v.found)), chances)
	excuses(v.run, stays, anyone).Into(&f, count)
	f.Witnesses = list.witnesses(v.run)
	return f
}
