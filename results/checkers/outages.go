// Outages: why a lock could not be taken for the longest time.
//
// The cause follows from the fate of the last holder, from users that died while they waited, and from servers that a
// fault took away. A cause is only named if events and receipts prove it.

package checkers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// Why a lock could not be taken: the state of its last holder for most of the time.
type outageCause uint8

const (
	causeUnknown     outageCause = iota
	causeHeld                    // the holder still had it in hand
	causeReleasing               // its release had no answer yet
	causeUnreleased              // its release ended without an ok: the grant may still exist in the service
	causeDead                    // the holder died
	causeLost                    // the holder was notified that it had lost the lock
	causeFree                    // it was released, and the service granted it to no user
	causeDeadWaiters             // it was released, and dead users were in its queue
	causeNoMajority              // too few servers were available to grant it
	causeNoLeader                // the leader did not run, and no other server led
)

// outageCauses has the words for several locks and for one.
var outageCauses = map[outageCause][2]string{
	causeHeld:       {"their holders had them in hand", "its holder had it in hand"},
	causeReleasing:  {"the releases of their holders had no answer", "the release of its holder had no answer"},
	causeUnreleased: {"the releases of their holders did not get through, so the grants stood until they expired", "the release of its holder did not get through, so the grant stood until it expired"},
	causeDead: {
		"their holders had died, so the grants stood until they expired",
		"its holder had died, so the grant stood until it expired",
	},
	causeLost: {"their holders had lost them", "its holder had lost it"},
	causeFree: {
		"they had been released, but the service did not grant them",
		"it had been released, but the service did not grant it",
	},
	causeDeadWaiters: {"dead users stood in their queues", "dead users stood in its queue"},
	causeNoMajority:  {"there was no majority of the servers", "there was no majority of the servers"},
	causeNoLeader:    {"the service had no leader", "the service had no leader"},
}

// outages keeps for each lock the longest time for which it could not be taken.
type outages struct {
	run   results.Run
	lost  []users.LostClient
	locks map[uint16]*lockOutage
	waits map[history.User]history.Event // with fair grants: acquires without an outcome
	next  history.User                   // the user whose grant ends the outage being recorded
}

type lockOutage struct {
	asked    int64 // ns in which users asked in vain
	from, to int64
	why      outageCause
	dead     int      // users that died in the queue
	left     []string // the servers left, too few for a majority
	lead     *history.Lead
	proof    history.Event

	granted int64 // when the last grant came
	user    history.User
	grant   uint32
	state   outageCause
	last    history.Event // the event that made the state; for a lock never granted: the first request
	before  []stateSpan   // earlier states since the last grant
}

func (o *outages) at(lock uint16) *lockOutage {
	if o.locks == nil {
		o.locks = map[uint16]*lockOutage{}
	}
	l := o.locks[lock]
	if l == nil {
		l = &lockOutage{}
		o.locks[lock] = l
	}
	return l
}

// observe tracks the fate of the last holder of each lock.
func (o *outages) observe(e *history.Event) {
	if o.run.Fair && e.Kind == history.Acquire {
		o.wait(e)
	}
	if e.Kind == history.Dead {
		if l := o.at(e.Lock); l.user == e.User && (l.grant == e.Grant || e.Grant == 0) &&
			(l.state == causeHeld || l.state == causeReleasing) {
			l.before = append(l.before, stateSpan{l.state, l.last, e.Time})
			l.state, l.last = causeDead, *e
		}
		return
	}
	if e.Kind > history.Release && e.Kind != history.Lost {
		return
	}
	l := o.at(e.Lock)
	before := l.state
	o.follow(l, e)
	switch granted := e.Kind == history.Acquire && e.Phase == history.Ok; {
	case granted:
		l.before = l.before[:0]
	case l.state != before:
		l.before = append(l.before, stateSpan{before, l.last, e.Time})
	case l.last.Kind != history.KindNone:
		return
	}
	l.last = *e
}

// wait records waiting users.
func (o *outages) wait(e *history.Event) {
	switch w, ok := o.waits[e.User]; {
	case e.Phase != history.Invoke:
		if ok && w.Op == e.Op {
			delete(o.waits, e.User)
		}
	case o.waits == nil:
		o.waits = map[history.User]history.Event{e.User: *e}
	default:
		o.waits[e.User] = *e
	}
}

// deadWaiters counts the users of killed clients in the queue of a lock. It returns 0 unless one of them was ahead of
// the user that was granted it at t. Example: A, B and C wait for lock-0, in that order, and A and C are killed. The
// service does not grant it to B until it has ended A's session. A holder that dies while it releases also keeps its
// place.
func (o *outages) deadWaiters(l *lockOutage, lock uint16, t int64) (n int) {
	if !o.run.Fair {
		return 0
	}
	next, waited := o.waits[o.next]
	before := l.state == causeReleasing && o.killed(l.user, t)
	if before {
		n++
	}
	for u, w := range o.waits {
		if w.Lock == lock && o.killed(u, t) {
			n++
			before = before || !waited || next.Lock != lock || w.Time < next.Time
		}
	}
	if !before {
		return 0
	}
	return n
}

// killed reports whether a user's client was killed by a fault before t.
func (o *outages) killed(u history.User, t int64) bool {
	return slices.ContainsFunc(o.run.Faults, func(f history.Fault) bool {
		return f.Traits != nil && f.Traits.Kills && f.Receipt.Status == history.Installed && f.Start < t &&
			slices.Contains(f.Targets, history.ClientName(u.Client()))
	})
}

// follow updates the state of a lock from an event.
func (o *outages) follow(l *lockOutage, e *history.Event) {
	mine := l.user == e.User && l.grant == e.Grant && l.grant != 0
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		l.granted, l.user, l.grant, l.state = e.Time, e.User, e.Op, causeHeld
	case !mine: // else it is a loss or a release
	case e.Kind == history.Lost && l.state == causeHeld:
		l.state = causeLost
	case e.Kind == history.Lost:
	case e.Phase == history.Invoke:
		l.state = causeReleasing
	case e.Phase != history.Ok && !notHeld(e.Code):
		l.state = causeUnreleased
	default:
		l.state = causeFree
	}
}

// add records that users asked for a lock in vain, from the fault's start or the last grant to t.
func (o *outages) add(lock uint16, asked, fault, t int64) {
	l := o.at(lock)
	if asked <= l.asked {
		return
	}
	l.asked, l.from, l.to = asked, max(fault, l.granted), t
	l.why, l.proof = l.mostly(l.from, t)
	gone := func(c users.LostClient) bool { return c.Client == l.user.Client() && c.Last < t }
	if (l.why == causeHeld || l.why == causeReleasing) && slices.ContainsFunc(o.lost, gone) {
		l.why = causeUnknown
	}
	l.dead = o.deadWaiters(l, lock, t)
	if l.dead > 0 && (l.why == causeFree || l.why == causeReleasing || l.why == causeUnreleased) {
		l.why = causeDeadWaiters
	}
	middle := l.from + (t-l.from)/2
	if left, missing := o.run.Majority.Missing(o.run.Faults, "", middle, middle); missing {
		l.why, l.left = causeNoMajority, left
	}
	l.lead = o.leaderless(lock, middle)
	if l.lead != nil && (l.why == causeFree || l.why == causeReleasing || l.why == causeUnreleased) {
		l.why = causeNoLeader
	}
}

// leaderless returns the known lead of a lock's servers if at t the leader did not run and no other server was known
// to lead; else nil. A leader that is only cut off may still serve its clients, and one that is back may lead again.
func (o *outages) leaderless(lock uint16, t int64) *history.Lead {
	for i := range o.run.Faults {
		f := &o.run.Faults[i]
		gone := f.Traits != nil && (f.Traits.Kills || f.Traits.Halts) && f.Receipt.Status == history.Installed
		// The selector leader(lock-0) belongs to a service that spreads its locks; leader does not.
		all := f.Shard == nil && !strings.Contains(f.Selector, "(")
		own := f.Shard != nil && f.Shard.Unknown == "" && f.Shard.Has(o.run.LockName(lock))
		if f.Lead == nil || f.Lead.Old == "" || !gone || !all && !own {
			continue
		}
		away, unled := f.End == 0 || t < f.End, f.Lead.Led == 0 || t < f.Lead.Led
		if f.Bit != 0 && f.Bit <= t && away && unled {
			return f.Lead
		}
	}
	return nil
}

// witness describes the lock with the longest outage, and counts the locks that were out for at least half as long.
func (o *outages) witness() (int, results.Witness) {
	var worst uint16
	all := 0
	for _, lock := range slices.Sorted(maps.Keys(o.locks)) {
		l := o.locks[lock]
		if l.asked > 0 {
			all++
		}
		if l.asked > o.locks[worst].longest() {
			worst = lock
		}
	}
	w := o.locks[worst]
	least, causes := w.asked, map[outageCause]int{}
	n := 0
	for _, l := range o.locks {
		if l.asked > 0 && 2*l.asked >= w.asked {
			n++
			least = min(least, l.asked)
			causes[l.why]++
		}
	}
	long := seconds(w.asked)
	if s := seconds(least); s != long {
		long = s + " to " + long
	}
	text := fmt.Sprintf("%d of %d locks could not be taken for %s s", n, all, long)
	if all == 1 {
		text = fmt.Sprintf("%s could not be taken for %s s", o.run.LockName(worst), long)
	}
	return n, results.Witness{
		Kind: "unavailability", Lock: o.run.LockName(worst), Text: text + o.reason(w, n, all, causes), From: w.from,
		To: w.to, Events: []history.Event{w.proof},
	}
}

// stateSpan is a past state.
type stateSpan struct {
	state outageCause
	by    history.Event // the event that made it
	until int64
}

// mostly returns the state that took most of the time from from to to, and the event that made it. Example: a paused
// holder releases the lock 4 s late, and 1 ms later it is granted: the state is that the holder had it in hand.
func (l *lockOutage) mostly(from, to int64) (state outageCause, by history.Event) {
	longest, at := int64(-1), from
	for _, s := range append(slices.Clone(l.before), stateSpan{l.state, l.last, to}) {
		if n := max(0, s.until-at); n >= longest {
			longest, state, by = n, s.state, s.by
		}
		at = max(at, s.until)
	}
	return state, by
}

func (l *lockOutage) longest() int64 {
	if l == nil {
		return 0
	}
	return l.asked
}

// reason says why most of n locks could not be taken, if known; w is the one with the longest outage.
func (o *outages) reason(w *lockOutage, n, all int, causes map[outageCause]int) string {
	why := slices.MaxFunc(slices.Sorted(maps.Keys(causes)),
		func(a, b outageCause) int { return cmp.Compare(causes[a], causes[b]) })
	words, known := outageCauses[why]
	if known && why == w.why {
		words = o.details(w, words)
	}
	switch {
	case !known:
		return ""
	case all == 1:
		return ": " + words[1]
	case causes[why] < n:
		return fmt.Sprintf("; of %d of them, %s", causes[why], words[0])
	}
	return ": " + words[0]
}

// details adds facts about one lock to the words for a cause.
func (o *outages) details(l *lockOutage, words [2]string) [2]string {
	queue := fmt.Sprintf("%d dead users stood in its queue until their sessions ended", l.dead)
	if l.dead == 1 {
		queue = "a dead user stood in its queue until its session ended"
	}
	switch {
	case l.why == causeNoMajority:
		for i := range words {
			words[i] += ": " + o.run.Majority.Left(l.left)
		}
	case l.why == causeNoLeader && l.lead.New != "":
		words[1] += fmt.Sprintf(" between %s and %s", l.lead.Old, l.lead.New)
	case l.why == causeNoLeader:
		words[1] += " after " + l.lead.Old
	case l.why == causeDeadWaiters:
		words[1] = queue
	case l.why == causeDead && l.dead > 0:
		words[1] += ", and " + queue
	}
	return words
}

// seconds formats ns for people.
func seconds(ns int64) string { return fmt.Sprintf("%.2f", float64(ns)/1e9) }
