package checkers

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// cleanedUp is how long a failed acquire may still be cleaning up when its user is told.
const cleanedUp = int64(100 * time.Millisecond)

// failedAcquires are the acquires of a lock that certainly failed, with what explains a grant that none of the others
// made: see false_results.
type failedAcquires struct {
	idle    idle
	worst   int64                     // the largest error of an event's time so far
	open    map[grantOf]history.Event // acquires without an answer
	failed  []*answeredOp
	granted map[history.User]bool
	// unclear is when the first acquire began of which it is not known whether it was granted; forever: there is none
	unclear int64
}

func newFailedAcquires() *failedAcquires {
	return &failedAcquires{
		idle: idle{busy: map[history.User]uint32{}}, open: map[grantOf]history.Event{},
		granted: map[history.User]bool{}, unclear: results.Forever,
	}
}

// observe takes the next event of the lock.
func (a *failedAcquires) observe(e *history.Event, clocks results.Clocks) {
	a.idle.observe(e)
	a.worst = max(a.worst, clocks.Late(e.User, e.Time)-e.Time)
	if e.Kind != history.Acquire {
		return
	}
	op := grantOf{e.User, e.Op}
	invoke, known := a.open[op]
	switch {
	case e.Phase == history.Invoke:
		a.open[op] = *e
		return
	case e.Phase == history.Ok:
		a.granted[e.User] = true
	case e.Phase == history.Fail && known:
		a.failed = append(a.failed, &answeredOp{invoke, *e})
	default:
		a.unclear = min(a.unclear, invoke.Time)
	}
	delete(a.open, op)
}

// grantedThoughFailed returns the grants that the service has although the acquires that made them certainly failed. A
// reading shows one if
//   - no user uses the lock, and the last failed acquire has had time to clean up
//   - the grant's id is none that a user was told, and all users that were granted the lock report such ids
//   - each acquire so far was granted or certainly failed
func (c *falseResults) grantedThoughFailed(lock uint16) (wrong []results.Witness, judged int64) {
	a := c.failed[lock]
	if a == nil || len(a.failed) == 0 || !c.identifies(lock, a) {
		return nil, 0
	}
	ids := map[string]bool{}
	for i := range c.reads[lock] {
		o := &c.reads[lock][i]
		op := a.before(o.LastAsked)
		if op == nil || a.unclear <= o.LastAnswered || len(a.open) > 0 {
			continue
		}
		for _, u := range a.idle.spans {
			u.from = max(u.from, op.answer.Time+cleanedUp)
			asked, answered, ok := u.seen(o, a.worst)
			if !ok {
				continue
			}
			judged++
			if o.Answer == "none" || o.User != nil || ids[o.Answer] {
				continue
			}
			ids[o.Answer] = true
			wrong = append(wrong, c.grantedWitness(op, o, span{asked, answered}))
		}
	}
	return wrong, judged
}

// before returns the last acquire that had failed by a time, and nil if there is none.
func (a *failedAcquires) before(t int64) *answeredOp {
	var out *answeredOp
	for _, op := range a.failed {
		if op.answer.Time < t {
			out = op
		}
	}
	return out
}

// identifies reports whether the service was seen to have a grant of each user that was granted the lock, by the id
// that the user was told.
func (c *falseResults) identifies(lock uint16, a *failedAcquires) bool {
	for user := range a.granted {
		has := func(o history.Observation) bool { return o.User != nil && *o.User == user }
		if !slices.ContainsFunc(c.reads[lock], has) {
			return false
		}
	}
	return len(a.granted) > 0
}

func (c *falseResults) grantedWitness(op *answeredOp, o *history.Observation, at span) results.Witness {
	return results.Witness{
		Kind: "false_result", Lock: c.run.LockName(op.invoke.Lock), From: op.invoke.Time, To: at.until,
		Events: []history.Event{op.invoke, op.answer}, Observed: []history.Observation{*o},
		Text: fmt.Sprintf("the acquire of %s by %v, sent at %s, was answered %s at %s; asked at %s, the service had a grant that can only be that of an acquire that failed",
			c.run.LockName(op.invoke.Lock), op.invoke.User, c.run.MS(op.invoke.Time), history.CodeName(op.answer.Code),
			c.run.MS(op.answer.Time), c.run.MS(at.from)),
	}
}
