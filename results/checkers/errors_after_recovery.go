// Errors after recovery: when the trouble is over, calls do not end in errors.
//
// A call is an acquire, a renewal or a release. It is judged if it begins when every fault has been healed for at
// least the lock's recovery bound, and if no fault begins before it ends. Contended, not held and lost are answers.
// Any other failure is an error.
//
// Example: a server restarts and serves again at 3 s, with its data, but without its cached scripts. The bound is 2
// s. A's releases at 6 s and at 9 s end with "NOSCRIPT": the first is forgiven, the second is an error after
// recovery.
//
// Forgiven are:
//   - the first error of a user since a fault began, and its first judged error from a broken connection
//   - an acquire that ends at its deadline: the user may have waited for another one
//   - a time-out, unless the user's two judged calls of that kind before it ended in errors too: the machine may be
//     busy
//   - a class of error that calls of that kind had before the first fault: then it is not the recovery that fails
//
// Stricter rules apply to a restarted server whose error answers never mean a broken connection (such as Redis).
// Nothing above forgives an error of the class other if the call began when that server served again. In the example
// the release at 6 s counts too, and so would one at 3.1 s.
//
// It cannot see calls that are not made after the bound, so a run must go on for longer than that. It does not judge
// a run without a fault, and whether an answer is true is for false_results.

package checkers

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

type afterRecovery struct {
	run    results.Run
	bound  int64
	clocks results.Clocks
	faults []history.Fault // that have not begun yet
	epoch  int             // how many have begun
	last   history.Fault   // the one of them that was healed last
	healed int64           // when; results.Forever if one stands to the end
	calls  users.Table[[]callAfter]
	users  users.Table[userAfter]
	usual  map[failure]bool // errors from before the first fault
	judged int64
	found  []errorAfter
	list   evidence.Shortlist
}

// callAfter is a call in progress, and the epoch in which it began.
type callAfter struct {
	invoke history.Event
	epoch  int
}

// failure is a class of error of a kind of call.
type failure struct {
	kind history.Kind
	code uint8
}

// userAfter has the epochs of a user's latest errors; 0: never.
type userAfter struct {
	erred  int                       // an error
	broken int                       // a judged error of its connection
	inARow [history.Renew + 1]streak // by kind of call
}

// streak is the number of successive judged calls that ended in errors.
type streak struct{ epoch, n int }

// maxInARow is the number of successive errors of one user and kind of call from which time-outs count.
const maxInARow = 3

// errorAfter is a call that ended in an error after the recovery.
type errorAfter struct {
	lock     uint16
	from, to int64
	refused  bool // by a server that serves: no standstill explains that
}

var afterRecoveryKind = results.CheckerKind{
	Name: "errors_after_recovery", New: newAfterRecovery, Grants: true,
	Doc: "From the recovery bound after the last heal on, acquires, renewals and releases do not end in errors.",
	Counts: []results.Quantity{{
		Name: "errors_after_recovery", Doc: "acquires, renewals and releases that began later than the lock's recovery bound after the last heal and ended in an error other than contended, not held or lost; a user's first error after a fault is forgiven",
		Tone: results.Violation, Of: "calls that began later than the recovery bound after the last heal",
	}},
	Witnesses: results.Aside("error_after_recovery"),
}

func newAfterRecovery(run results.Run) results.Checker {
	faults := slices.DeleteFunc(slices.Clone(run.Faults), idleFault)
	return &afterRecovery{
		run: run, bound: run.RecoveryBound(), clocks: run.Clocks(), faults: faults, usual: map[failure]bool{},
	}
}

// Observe takes the next event.
func (c *afterRecovery) Observe(e *history.Event) {
	if e.Kind != history.Acquire && e.Kind != history.Renew && e.Kind != history.Release {
		return
	}
	c.pass(c.clocks.Late(e.User, e.Time))
	calls := c.calls.At(e.User)
	if e.Phase == history.Invoke {
		*calls = append(*calls, callAfter{*e, c.epoch})
		return
	}
	i := slices.IndexFunc(*calls, func(x callAfter) bool { return x.invoke.Op == e.Op })
	if i < 0 {
		return
	}
	x := (*calls)[i]
	*calls = slices.Delete(*calls, i, i+1)
	c.ended(x, e)
}

// pass takes the faults that begin up to t.
func (c *afterRecovery) pass(t int64) {
	for len(c.faults) > 0 && c.faults[0].Start <= t {
		f := c.faults[0]
		c.faults = c.faults[1:]
		if f.End == 0 {
			f.End = results.Forever
		}
		c.epoch++
		if f.End >= c.healed {
			c.healed, c.last = f.End, f
		}
	}
}

// ended takes the outcome of a call.
func (c *afterRecovery) ended(x callAfter, e *history.Event) {
	failed := isError(x.invoke, e)
	refused := failed && c.refused(x, e.Code)
	if c.epoch == 0 {
		if failed {
			c.usual[failure{e.Kind, e.Code}] = true
		}
		return
	}
	u := c.users.At(e.User)
	first := u.erred != c.epoch
	if failed {
		u.erred = c.epoch
	}
	if !refused && !c.judges(x) {
		return
	}
	c.judged++
	row := &u.inARow[e.Kind]
	if row.epoch != c.epoch || !failed {
		*row = streak{epoch: c.epoch}
	}
	if !failed {
		return
	}
	row.n++
	forgiven := !refused && c.forgives(u, e.Code, first, row.n)
	if !c.usual[failure{e.Kind, e.Code}] && !forgiven {
		c.add(x.invoke, e, refused)
	}
}

// judges reports whether a call began after the recovery, without a fault since then.
func (c *afterRecovery) judges(x callAfter) bool {
	began := c.clocks.Early(x.invoke.User, x.invoke.Time)
	return x.epoch == c.epoch && c.healed != results.Forever && began >= c.healed+c.bound &&
		(c.run.End == 0 || x.invoke.Time < c.run.End)
}

// refused reports whether an error is the answer of the single server to a call that began when it served again.
func (c *afterRecovery) refused(x callAfter, code uint8) bool {
	return c.run.Terse && c.run.Majority == nil && code == history.CodeOther && x.epoch == c.epoch &&
		c.last.Traits != nil && c.last.Traits.Kills && !c.atClients(c.last) &&
		c.clocks.Early(x.invoke.User, x.invoke.Time) >= c.healed
}

// atClients reports whether a target of a fault is a client.
func (*afterRecovery) atClients(f history.Fault) bool {
	return slices.ContainsFunc(f.Targets, func(name string) bool {
		_, client := history.ClientOf(name)
		return client
	})
}

// forgives reports whether an error of a judged call does not count. first says that it is the user's first one since
// the fault began.
func (c *afterRecovery) forgives(u *userAfter, code uint8, first bool, inARow int) bool {
	switch code {
	case history.CodeTimeout:
		return inARow < maxInARow
	case history.CodeConnection:
		known := u.broken == c.epoch
		u.broken = c.epoch
		return !known
	}
	return first
}

// isError reports whether a call ended in an error. A certain no without a class may be an answer.
func isError(invoke history.Event, e *history.Event) bool {
	if e.Phase == history.Ok {
		return false
	}
	switch e.Code {
	case history.CodeContended, history.CodeNotHeld, history.CodeLost, history.CodeCancelled, history.CodeFenced:
		return false
	case history.CodeNone:
		if e.Phase == history.Fail {
			return false
		}
	}
	return e.Kind != history.Acquire || invoke.Valid <= 0 || e.Time < invoke.Valid
}

// add records an error after recovery.
func (c *afterRecovery) add(invoke history.Event, e *history.Event, refused bool) {
	c.found = append(c.found, errorAfter{e.Lock, invoke.Time, e.Time, refused})
	since := invoke.Time - c.healed
	p := evidence.Proof{
		Kind: "error_after_recovery", From: invoke.Time, To: e.Time, Rank: int(since / 1e6),
		Events: []history.Event{invoke, *e},
	}
	if !c.list.Wants(p.Rank) {
		return
	}
	class := history.CodeName(e.Code)
	if class == "" {
		class = "of no class"
	}
	text := fmt.Sprintf("%s of %v began %.3f ms after the heal of %s on %s and ended in an error (%s) at %s; the bound is %.3f ms",
		e.Kind, e.User, results.Milli(since), c.last.Name, c.last.Target, class, c.run.MS(e.Time),
		results.Milli(c.bound))
	p.Text = func() string { return text }
	c.list.Add(p)
}

// excuse returns the process of lockquake that stood still the longest around an error, and whether that may explain
// it. A standstill during the call does. Otherwise it must exceed a quarter of the TTL, within the recovery bound
// before the call.
func (c *afterRecovery) excuse(x errorAfter) (results.Standstill, bool) {
	if during := c.run.Still.Worst(x.from, x.to); during.Total > 0 {
		return during, true
	}
	before := c.run.Still.Worst(x.from-c.bound, x.to)
	return before, before.Total > c.run.TTL/4
}

// Finish returns the finding.
func (c *afterRecovery) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	switch {
	case len(c.run.Faults) == 0:
		return f.NotApplicable("nothing was broken")
	case c.bound <= 0:
		return f.NotApplicable("neither a recovery bound nor a ttl is known")
	case c.judged == 0:
		return f.NotApplicable("no call began later than the recovery bound after the last heal")
	}
	l := results.NewLedger()
	for _, x := range c.found {
		still, excused := c.excuse(x)
		l.Add(c.run, x.lock, 1, still, excused && !x.refused)
	}
	f = f.Judged("errors_after_recovery", int64(len(c.found)), c.judged)
	l.Into(&f, "errors_after_recovery")
	f.Witnesses = c.list.Witnesses(c.run)
	return f
}
