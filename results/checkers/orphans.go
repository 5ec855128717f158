// Orphans: locks that the service has and that no user believes it holds.
//
// The service as a whole is asked who has a lock (observe: keys:LOCK or holder:LOCK on service). A grant is an orphan
// if it exists while no user holds the lock, asks for it, or waits for the answer to a release. It was left by an
// acquire that failed for its user, by a release whose answer was lost, or by a lock that notified its holder of a
// loss. Its age counts from the moment at which the last user gave up, to the last time at which it certainly still
// existed.
//
// Example: A asks at 0 s and gives up at 1 s. At 1.5 s the service says that the lock is held, at 2 s that it is not.
// No other user asks. That is one orphan, at least 0.5 s old.
//
// Some orphans no library can prevent: the request arrived, the answer was lost, and the service cannot be reached.
// So the count judges nothing by itself. A scenario bounds the count if nothing was broken, and the age if something
// was.
//
// It cannot see an orphan while others use the lock, nor one that a killed client left, which its TTL ends.

package checkers

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type orphans struct {
	run    results.Run
	reads  map[uint16][]history.Observation
	clocks results.Clocks
	worst  int64 // the largest error of an event's time so far
	locks  map[uint16]*idle
}

// idle tracks the times in which no user uses a lock.
type idle struct {
	// busy has the users that hold, acquire or release it, with the op of their latest call in progress. A killed
	// user stays busy for ever: what it left is no orphan.
	busy  map[history.User]uint32
	spans []unused
}

// unused is a time in which no user uses a lock, and the event that began it.
type unused struct {
	span
	began history.Event
}

var orphansKind = results.CheckerKind{
	Name: "orphans", New: newOrphans, Grants: true,
	Doc: "The service keeps no lock without a holder. Judged where the service was asked while the lock was unused.",
	Counts: []results.Quantity{
		{
			Name: "orphans", Doc: "grants that the service has while no user holds, acquires or releases the lock ([asked by](scenarios.md#steps) `observe: \"keys:LOCK\"` on `service`)",
			Tone: results.Doubtful, Of: "observations of an unused lock", NeedsAll: true,
		},
	},
	Measures: []results.Quantity{
		{Name: "orphan_age_ms", Doc: "how long the oldest of them certainly stood after the last user had ended its call"},
	},
	Witnesses: results.Aside("orphan"),
}

func newOrphans(run results.Run) results.Checker {
	return &orphans{
		run: run, reads: readings(run, history.FactHolder, history.FactKeys), locks: map[uint16]*idle{},
		clocks: run.Clocks(),
	}
}

// Observe takes the next event.
func (c *orphans) Observe(e *history.Event) {
	if len(c.reads[e.Lock]) == 0 {
		return
	}
	c.worst = max(c.worst, c.clocks.Late(e.User, e.Time)-e.Time)
	l := c.locks[e.Lock]
	if l == nil {
		l = &idle{busy: map[history.User]uint32{}}
		c.locks[e.Lock] = l
	}
	l.observe(e)
}

// observe takes the next event of the lock.
func (l *idle) observe(e *history.Event) {
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke, e.Kind == history.Release && e.Phase == history.Invoke:
		l.use(e)
	case e.Kind == history.Lost, e.Kind == history.Acquire && e.Phase != history.Ok, e.Kind == history.Release:
		l.leave(e)
	}
}

// use starts with an acquire or release.
func (l *idle) use(e *history.Event) {
	if n := len(l.spans); len(l.busy) == 0 && n > 0 && l.spans[n-1].until == results.Forever {
		l.spans[n-1].until = e.Time
	}
	l.busy[e.User] = e.Op
}

// leave ends a use: the lock was lost, the wait was abandoned, or the release returned.
func (l *idle) leave(e *history.Event) {
	if op, ok := l.busy[e.User]; !ok || op != e.Op && e.Kind != history.Lost {
		return
	}
	delete(l.busy, e.User)
	if len(l.busy) == 0 {
		l.spans = append(l.spans, unused{span{e.Time, results.Forever}, *e})
	}
}

// seen returns when a reading certainly observed its answer, within a time in which no user used the lock. worst is the
// largest error of an event's time.
func (u unused) seen(o *history.Observation, worst int64) (asked, answered int64, ok bool) {
	for _, at := range []span{{o.LastAsked, o.LastAnswered}, {o.Asked, o.Answered}} {
		if at.from > u.from+worst && (u.until == results.Forever || at.until < u.until-worst) {
			return at.from, at.until, true
		}
	}
	return 0, 0, false
}

// Finish returns the finding.
func (c *orphans) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{"orphan_age_ms": nil}}
	type orphan struct {
		lock uint16
		id   string
	}
	ids := map[orphan]bool{}
	var looks, oldest int64
	for i := range c.run.Locks {
		lock := uint16(i)
		l := c.locks[lock]
		if l == nil {
			continue
		}
		for k := range c.reads[lock] {
			o := &c.reads[lock][k]
			for _, u := range l.spans {
				asked, answered, ok := u.seen(o, c.worst)
				if !ok {
					continue
				}
				looks++
				if o.Answer == "none" {
					continue
				}
				oldest = max(oldest, asked-u.from)
				if key := (orphan{lock, o.Answer}); !ids[key] {
					ids[key] = true
					f.Prove(c.witness(lock, o, u, asked, answered))
				}
			}
		}
	}
	if len(c.reads) == 0 {
		return f.NotApplicable(unread)
	}
	if looks == 0 {
		return f.NotApplicable("the service was not asked for the owner of a lock while the lock was unused")
	}
	out := f.Judged("orphans", int64(len(ids)), looks)
	out.Measures["orphan_age_ms"] = new(results.Milli(oldest))
	return out
}

func (c *orphans) witness(lock uint16, o *history.Observation, u unused, asked, answered int64) results.Witness {
	what := "a failed acquire"
	if o.User != nil {
		what = fmt.Sprintf("the grant of %v", *o.User)
	}
	return results.Witness{
		Kind: "orphan", Lock: c.run.LockName(lock), From: u.from, To: answered, Events: []history.Event{u.began},
		Observed: []history.Observation{*o},
		Text: fmt.Sprintf("%s was unused from %s on (%s %s of %v), but at %s the service still had the remains of %s",
			c.run.LockName(lock), c.run.MS(u.from),
			u.began.Kind, u.began.Phase, u.began.User, c.run.MS(asked), what),
	}
}
