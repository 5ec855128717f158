// Unavailability: how long a lock could not be taken that somebody asked for, through a fault and until recovery.
//
// It is, for each lock, the longest time without a grant during which somebody asked: counted from the fault's
// start, or from the last grant where that is later, to the next grant, until the first grant after the heal. The
// run's figure is the longest of all locks and faults. Beside it stands the number of locks that were unavailable
// for at least half as long. Time that a holder spends inside counts: those who wait do not care why. Why a lock
// could not be taken follows from what became of its last holder: see outages below.
//
// It cannot see an outage during which nobody asked, and without a fault it judges nothing: see longest_wait_ms.

package checkers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type unavailability struct {
	run   results.Run
	asks  *asks
	locks []availableLock
	outs  outages
	worst []outage
	last  int64
	many  string // why nothing can be told: so many faults there were
	looks looks  // at a lock and a fault
}

// outage is what one fault did.
type outage struct {
	asked   bool
	longest int64
}

const (
	// maxActive bounds the faults that are followed for one lock, although it was granted since.
	maxActive = 128
	// maxFaultLooks bounds how often a lock is held against a fault.
	maxFaultLooks = 1 << 24
)

type availableLock struct {
	used   bool
	seen   int64
	asked  int64   // how long somebody asked so far
	grant  int64   // what asked was at the last grant
	next   int     // the next fault to begin
	begun  []begun // since the last grant
	faults []window
}

// begun is faults that began between two looks at a lock.
type begun struct {
	first, next int   // by their places in the run
	from        int64 // the time of the first look
	asked       int64 // what the lock's asked was then
	asking      bool  // whether somebody asked from then on
}

// at returns what the lock's asked was at a fault's start.
func (b begun) at(start int64) int64 {
	if b.asking {
		return b.asked + max(0, start-b.from)
	}
	return b.asked
}

// window is a fault that a lock has not recovered from.
type window struct {
	fault int
	asked int64 // what the lock's asked was at the fault's start
}

// perFault is what the names of the measures of single injections begin with.
const perFault = "unavailability_ms"

var unavailabilityKind = results.CheckerKind{
	Name: "unavailability", New: newUnavailability, PerFault: perFault, Grants: true,
	Doc: "How long nobody got a lock that somebody asked for, through a fault and until recovery; for each fault too.",
	Measures: []results.Quantity{
		{Name: "unavailable_locks", Doc: "locks that could not be taken for at least half of `unavailability_ms_max`"},
		{
			Name: "unavailability_ms_max", Doc: "the longest time that one lock could not be taken though somebody asked, during a fault and until recovery; `unavailability_ms_FAULT_N` is the same for one injection",
			First: 2,
		},
	},
}

func newUnavailability(run results.Run) results.Checker {
	c := &unavailability{run: run, locks: make([]availableLock, len(run.Locks)), worst: make([]outage, len(run.Faults)), looks: looks{most: maxFaultLooks}}
	c.asks = newAsks(run, c, false)
	c.outs.run, c.outs.lost = run, lostClients(run)
	return c
}

// touch adds the time since the lock was last looked at, if somebody asked, and begins the faults since.
func (c *unavailability) touch(lock uint16, t int64) {
	for int(lock) >= len(c.locks) {
		c.locks = append(c.locks, availableLock{})
	}
	l := &c.locks[lock]
	b := begun{first: l.next, from: l.seen, asked: l.asked, asking: int(lock) < len(c.asks.asking) && c.asks.asking[lock] > 0}
	for l.next < len(c.run.Faults) && c.run.Faults[l.next].Start <= t {
		l.next++
	}
	if b.next = l.next; b.first < b.next {
		l.begun = append(l.begun, b)
	}
	l.asked, l.used = b.at(t), true
	l.seen = max(l.seen, t)
}

// Observe takes the next event.
func (c *unavailability) Observe(e *history.Event) {
	c.last = e.Time
	c.asks.observe(e)
	if e.Kind == history.Acquire && e.Phase == history.Ok {
		c.touch(e.Lock, e.Time)
		c.granted(&c.locks[e.Lock], e.Lock, e.Time)
	}
	c.outs.observe(e)
}

// granted closes the gap of a lock in every fault that it has not recovered from.
func (c *unavailability) granted(l *availableLock, lock uint16, t int64) {
	if c.many != "" {
		return
	}
	open := l.faults[:0]
	close := func(w window) {
		if !c.looks.take(1) {
			c.many = "there were too many locks and faults to hold each lock against each fault"
			return
		}
		if n := c.gap(l, w); n > 0 {
			c.outs.add(lock, n, c.run.Faults[w.fault].Start, t)
		}
		switch end := c.run.Faults[w.fault].End; {
		case end != 0 && t >= end:
		case len(open) == maxActive:
			c.many = fmt.Sprintf("more than %d faults stood at once", maxActive)
		default:
			open = append(open, w)
		}
	}
	for _, w := range l.faults {
		close(w)
	}
	for _, b := range l.begun {
		for i := b.first; i < b.next; i++ {
			close(window{i, b.at(c.run.Faults[i].Start)})
		}
	}
	l.faults, l.begun = open, l.begun[:0]
	l.grant = l.asked
}

// gap returns how long somebody asked for the lock in vain since the fault began.
func (c *unavailability) gap(l *availableLock, w window) int64 {
	o := &c.worst[w.fault]
	n := l.asked - max(w.asked, l.grant)
	if n > 0 {
		o.asked = true
		o.longest = max(o.longest, n)
	}
	return n
}

// Finish returns the finding.
func (c *unavailability) Finish() results.Finding {
	for i := range c.locks {
		if l := &c.locks[i]; l.used {
			c.touch(uint16(i), c.last)
			c.granted(l, uint16(i), c.last) // nothing comes any more
			*l = availableLock{}
		}
	}
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{"unavailability_ms_max": nil, "unavailable_locks": nil}}
	longest, asked := int64(0), false
	for i, o := range c.worst {
		name := results.FaultMeasure(perFault, c.run.Faults[i].Name, strconv.Itoa(c.run.Faults[i].ID))
		f.Measures[name] = nil
		if o.asked {
			asked = true
			longest = max(longest, o.longest)
			f.Measures[name] = new(results.Milli(o.longest))
		}
	}
	if c.many != "" {
		for name := range f.Measures {
			f.Measures[name] = nil
		}
		f.Verdict, f.Warnings = results.Unknown, []string{c.many + ": how long nobody got a lock is not told"}
		return f
	}
	if !asked {
		f.Verdict, f.Skipped = results.Unknown, "nobody asked for a lock while a fault stood"
		return f
	}
	f.Measures["unavailability_ms_max"] = new(results.Milli(longest))
	n, w := c.outs.witness()
	locks := float64(n)
	f.Measures["unavailable_locks"] = &locks
	f.Witnesses = []results.Witness{w}
	return f
}

// KindUnavailability is the kind of the witness that tells of the longest time for which a lock could not be taken: its From and To, and how
// many locks were out for about as long, and why.
const KindUnavailability = "unavailability"

// Why a lock could not be taken: what had become of its last holder when the next one came.
type outageCause uint8

const (
	causeUnknown    outageCause = iota
	causeHeld                   // the holder still had it in hand
	causeReleasing              // its release had no answer yet
	causeUnreleased             // its release ended without a yes: the grant may stand in the service
	causeDead                   // the holder died
	causeLost                   // the holder was told that it had lost the lock
	causeFree                   // it was released, and the service granted it to nobody
)

// outageCauses says it of several locks and of one.
var outageCauses = map[outageCause][2]string{
	causeHeld:       {"their holders had them in hand", "its holder had it in hand"},
	causeReleasing:  {"the releases of their holders had no answer", "the release of its holder had no answer"},
	causeUnreleased: {"the releases of their holders did not come through, so the grants stood until their time was over", "the release of its holder did not come through, so the grant stood until its time was over"},
	causeDead:       {"their holders had died, so the grants stood until their time was over", "its holder had died, so the grant stood until its time was over"},
	causeLost:       {"their holders had lost them", "its holder had lost it"},
	causeFree:       {"they had been released, and the service granted them to nobody", "it had been released, and the service granted it to nobody"},
}

// outages keeps for each lock the longest time for which it could not be taken.
type outages struct {
	run   results.Run
	lost  []lostClient
	locks map[uint16]*lockOutage
}

type lockOutage struct {
	asked    int64 // ns that somebody asked in vain
	from, to int64
	why      outageCause
	proof    history.Event

	granted int64 // when the last grant came
	user    history.User
	grant   uint32
	state   outageCause
	last    history.Event // what made the state; of a lock that was never granted: the first request
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

// observe follows what becomes of the last holder of each lock.
func (o *outages) observe(e *history.Event) {
	if e.Kind == history.Dead {
		if l := o.at(e.Lock); l.user == e.User && (l.grant == e.Grant || e.Grant == 0) && (l.state == causeHeld || l.state == causeReleasing) {
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
	if l.state != before || e.Kind == history.Acquire && e.Phase == history.Ok || l.last.Kind == history.KindNone {
		l.last = *e
	}
}

// follow takes an event for the state of its lock.
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

// add notes that somebody asked for a lock in vain for a time, from the fault's start or the last grant to t.
func (o *outages) add(lock uint16, asked, fault, t int64) {
	l := o.at(lock)
	if asked <= l.asked {
		return
	}
	l.asked, l.from, l.to, l.why, l.proof = asked, max(fault, l.granted), t, l.state, l.last
	gone := func(c lostClient) bool { return c.client == l.user.Client() && c.last < t }
	if (l.state == causeHeld || l.state == causeReleasing) && slices.ContainsFunc(o.lost, gone) {
		l.why = causeUnknown
	}
}

// witness tells of the lock that was out the longest, and how many were out for at least half as long.
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
		Kind: KindUnavailability, Lock: o.run.LockName(worst), Text: text + outageReason(n, all, causes), From: w.from, To: w.to, Events: []history.Event{w.proof},
	}
}

func (l *lockOutage) longest() int64 {
	if l == nil {
		return 0
	}
	return l.asked
}

// outageReason says why most of n locks could not be taken, where that is known.
func outageReason(n, all int, causes map[outageCause]int) string {
	why := slices.MaxFunc(slices.Sorted(maps.Keys(causes)), func(a, b outageCause) int { return cmp.Compare(causes[a], causes[b]) })
	words, known := outageCauses[why]
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

// seconds writes ns for people.
func seconds(ns int64) string { return fmt.Sprintf("%.2f", float64(ns)/1e9) }
