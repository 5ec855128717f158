// False results: the answer to an acquire, renewal or release matches the service's state.
//
// In a run by steps the service as a whole is asked who has the lock and until when. The questions follow each grant,
// and each answer to a renewal or release. An answer is false when one of these readings contradicts it:
//   - an acquire was ok, and the grant ends sooner than its answer said
//   - a renewal was ok, and while it should be valid the grant is not there, or ends sooner
//   - a release was ok, and the grant is there afterwards
//   - a renewal or release was certainly not held, and the grant is there afterwards
//   - a renewal or release certainly failed, and was done: the grant has a later end, or is gone before the end that it
//     had
//   - an acquire certainly failed, and was granted: the service has a grant that belongs to no other acquire
//
// A release that was ok although a reading shows that the grant had been gone before is counted separately. Some
// services delete what may not exist and answer ok to that, as etcd's Unlock does. It does no harm by itself, but its
// user never learns that others may have been inside.
//
// Example: A's grant ends at 2 s, B is granted the lock at 2.1 s, and at 2.2 s a reading says that B has it. A renews
// at 3 s and gets an ok, valid until 5 s; at 3.1 s a reading says that B has it. That ok is false.
//
// Example: A asks at 0 s, gets no reply, and tells its user at 1 s that the lock is taken. Nobody else has asked. At
// 1.2 s a reading says that a grant with an unknown id has the lock. It can only be that of A's acquire, which did not
// certainly fail.
//
// A reading counts only if no other event can explain it. It lies wholly before the request or after the answer. The
// user has not asked for the lock again, nor begun to release it, nor learned of its loss, nor died. No other user's
// release was in progress. No server was broken.
//
// It cannot see what no reading shows, such as an answer that no reading of the service followed in time. A grant
// whose id its client does not report is known to be gone only while no user has the lock.

package checkers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// endSlack is the tolerance for the end of a grant: services round, and clocks drift.
const endSlack = int64(20 * time.Millisecond)

type falseResults struct {
	run results.Run
	// by lock: answers of the service as a whole, in the order of the questions
	reads    map[uint16][]history.Observation
	known    map[grantOf]bool // grants whose id is known
	clocks   results.Clocks
	ops      []*answeredOp
	open     map[grantOf]*answeredOp // the renewal or release in progress
	granted  map[grantOf]history.Event
	left     map[grantOf]int64         // when its user began to release it, learned of its loss, or may have died
	acquires map[results.Place][]int64 // when they began
	releases map[uint16][]underway
	failed   map[uint16]*failedAcquires
}

// answeredOp is a renewal or release with the answer to its user.
type answeredOp struct{ invoke, answer history.Event }

// underway is a release in progress; until is forever while it has no answer.
type underway struct {
	user history.User
	op   uint32
	span
}

var falseResultsKind = results.CheckerKind{
	Name: "false_results", New: newFalseResults, Grants: true,
	Doc: "The answer to an acquire, renewal or release matches the state of the service. Judged in runs by steps, if the service names the owner of a lock.",
	Counts: []results.Quantity{
		{
			Name: "false_results", Doc: "acquires, renewals and releases that were answered ok but not done, or failed for certain but were done ([asked](#what-the-service-has) after each answer)",
			Tone: results.Violation, Of: "acquires, renewals and releases whose answer was compared with the state of the service", NeedsAll: true,
		},
		{
			Name: "releases_of_nothing",
			Doc:  "releases that were answered ok although the grant was already gone: their users do not learn that they had lost the lock",
			Tone: results.Doubtful, NeedsAll: true,
		},
	},
	Witnesses: results.Aside("false_result", "release_of_nothing"),
}

func newFalseResults(run results.Run) results.Checker {
	c := &falseResults{
		run: run, reads: readings(run, history.FactHolder), known: map[grantOf]bool{}, open: map[grantOf]*answeredOp{},
		granted: map[grantOf]history.Event{},
		left:    map[grantOf]int64{}, acquires: map[results.Place][]int64{}, releases: map[uint16][]underway{},
		failed: map[uint16]*failedAcquires{}, clocks: run.Clocks(),
	}
	for _, list := range c.reads {
		for _, o := range list {
			if o.User != nil {
				c.known[grantOf{*o.User, o.Grant}] = true
			}
		}
	}
	return c
}

// readings returns the answers of the service as a whole to questions whose fact has one of these prefixes. They are
// by lock, in their order, up to the first fault on a server. A fault only on links from servers to clients does not
// change the servers' state. Locks that the service was never observed to have are left out: their clients may keep
// them elsewhere.
func readings(run results.Run, facts ...string) map[uint16][]history.Observation {
	broken := results.Forever
	for i := range run.Faults {
		f := &run.Faults[i]
		if atServer(run, f) && !towardsClients(f) {
			broken = min(broken, f.Start)
		}
	}
	out := map[uint16][]history.Observation{}
	for _, o := range run.Observed {
		if o.Node != history.Service || o.Answer == "" || o.LastAnswered >= broken {
			continue
		}
		for _, fact := range facts {
			if name, ok := strings.CutPrefix(o.Fact, fact); ok && slices.Contains(run.Locks, name) {
				lock := uint16(slices.Index(run.Locks, name))
				out[lock] = append(out[lock], o)
			}
		}
	}
	maps.DeleteFunc(out, func(_ uint16, list []history.Observation) bool {
		return !slices.ContainsFunc(list, func(o history.Observation) bool { return o.Answer != "none" })
	})
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b history.Observation) int { return int(a.Asked - b.Asked) })
	}
	return out
}

// towardsClients reports whether a fault is on links whose other ends are clients only.
func towardsClients(f *history.Fault) bool {
	return len(f.Peers) > 0 && !slices.ContainsFunc(f.Peers, func(p string) bool {
		_, client := history.ClientOf(p)
		return !client
	})
}

// unread is the reason for missing readings.
const unread = "the service was not asked for the owner of a lock, it never had one at that place, or a server was broken by then"

// Observe takes the next event.
func (c *falseResults) Observe(e *history.Event) {
	if len(c.reads[e.Lock]) == 0 {
		return
	}
	if c.failed[e.Lock] == nil {
		c.failed[e.Lock] = newFailedAcquires()
	}
	c.failed[e.Lock].observe(e, c.clocks)
	g := grantOf{e.User, e.Grant}
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		c.acquires[results.PlaceOf(e)] = append(c.acquires[results.PlaceOf(e)], e.Time)
		c.open[grantOf{e.User, e.Op}] = &answeredOp{invoke: *e}
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		c.granted[grantOf{e.User, e.Op}] = *e
		c.answered(grantOf{e.User, e.Op}, e)
	case e.Kind == history.Lost || e.Kind == history.Dead:
		c.leaves(g, heldUntil(e))
	case e.Kind != history.Renew && e.Kind != history.Release:
	case e.Phase == history.Invoke:
		c.open[g] = &answeredOp{invoke: *e}
		if e.Kind == history.Release {
			c.leaves(g, e.Time)
			c.releases[e.Lock] = append(c.releases[e.Lock], underway{e.User, e.Op, span{e.Time, results.Forever}})
		}
	default:
		c.answered(g, e)
	}
}

func (c *falseResults) leaves(g grantOf, at int64) {
	if _, ok := c.left[g]; !ok {
		c.left[g] = at
	}
}

// answered ends an operation.
func (c *falseResults) answered(g grantOf, e *history.Event) {
	for i := range c.releases[e.Lock] {
		// else it may still be on its way
		if r := &c.releases[e.Lock][i]; r.user == e.User && r.op == e.Op && e.Phase != history.Info {
			r.until = e.Time
		}
	}
	if op := c.open[g]; op != nil && op.invoke.Op == e.Op && e.Phase != history.Info {
		op.answer = *e
		c.ops = append(c.ops, op)
	}
}

// has reports whether the reading shows the grant; lacks reports whether it certainly does not.
func has(o *history.Observation, g grantOf) bool {
	return o.User != nil && *o.User == g.user && o.Grant == g.grant
}

func (c *falseResults) lacks(o *history.Observation, g grantOf) bool {
	return o.Answer == "none" || c.known[g] && !has(o, g) && !strings.Contains(o.Answer, ",")
}

// judgedOp is an operation with the readings that it may be compared with.
type judgedOp struct {
	*answeredOp
	grant  grantOf
	before *history.Observation // the last one before the request; nil: none
	after  *history.Observation // the first one after the answer; nil: none
}

// place finds the readings of an operation; those after it end when its user asks again.
func (c *falseResults) place(op *answeredOp) judgedOp {
	j := judgedOp{answeredOp: op, grant: grantOf{op.invoke.User, op.invoke.Grant}}
	if op.invoke.Kind == history.Acquire {
		j.grant.grant = op.invoke.Op
	}
	again := results.Forever
	for _, at := range c.acquires[results.PlaceOf(&op.invoke)] {
		if at > op.invoke.Time {
			again = min(again, at)
		}
	}
	ok, user := c.granted[j.grant], j.grant.user
	reads := c.reads[op.invoke.Lock]
	for i := range reads {
		o := &reads[i]
		switch {
		case ok.Time > 0 && o.Asked > c.clocks.Late(user, ok.Time) &&
			o.LastAnswered < c.clocks.Early(user, op.invoke.Time):
			j.before = o
		case j.after == nil && o.Asked > c.clocks.Late(user, op.answer.Time) &&
			o.LastAnswered < c.clocks.Early(user, again):
			j.after = o
		}
	}
	return j
}

// alone reports whether no other user's release was in progress from one time to another.
func (c *falseResults) alone(j judgedOp, from, until int64) bool {
	return !slices.ContainsFunc(c.releases[j.invoke.Lock], func(r underway) bool {
		return r.user != j.grant.user && c.clocks.Early(r.user, r.from) <= until &&
			c.clocks.Late(r.user, r.until) >= from
	})
}

// contradiction returns the reading that contradicts the answer, and how; "" if none does. judged is false if none
// could.
func (c *falseResults) contradiction(j judgedOp) (why string, by *history.Observation, judged bool) {
	ok, release := j.answer.Phase == history.Ok, j.invoke.Kind == history.Release
	switch {
	case ok && release && j.after != nil && has(j.after, j.grant):
		return "the grant was still there", j.after, true
	case ok && !release:
		return c.unkept(j)
	case j.after != nil && has(j.after, j.grant) && notHeld(j.answer.Code):
		return "the grant was there", j.after, true
	case !ok:
		return c.done(j)
	}
	return "", nil, j.after != nil || j.before != nil
}

// unkept says how a reading contradicts an acquire or renewal that was ok. The reading must lie within the new
// validity, and before its user released the grant.
func (c *falseResults) unkept(j judgedOp) (why string, by *history.Observation, judged bool) {
	o := j.after
	end := j.answer.Valid
	if left, ok := c.left[j.grant]; ok {
		end = min(end, left)
	}
	switch {
	case o == nil || end == history.ValidUnknown || o.Answered >= c.clocks.Early(j.grant.user, end) ||
		!c.alone(j, c.clocks.Early(j.grant.user, j.invoke.Time), o.Answered):
		return "", nil, false
	case j.invoke.Kind == history.Renew && c.lacks(o, j.grant):
		return "the grant was not there", o, true
	case j.invoke.Kind == history.Acquire && (o.EndsIn == nil || j.answer.Valid == history.ValidEndless):
		return "", nil, false // only its end is checked
	case has(o, j.grant) && o.EndsIn != nil && j.answer.Valid != history.ValidEndless && o.Answered+*o.EndsIn+
		endSlack < c.clocks.Early(j.grant.user, j.answer.Valid):
		return fmt.Sprintf("the grant was due to end at %s, but the answer was %s", c.run.MS(o.Answered+*o.EndsIn),
			c.run.MS(j.answer.Valid)), o, true
	}
	return "", nil, has(o, j.grant)
}

// done says how a reading shows that an operation was done although it certainly failed. That needs an earlier answer
// of the service with the end of the grant.
func (c *falseResults) done(j judgedOp) (why string, by *history.Observation, judged bool) {
	before, after := j.before, j.after
	if before == nil || after == nil || !has(before, j.grant) || before.EndsIn == nil ||
		!c.alone(j, before.Asked, after.Answered) {
		return "", nil, after != nil
	}
	switch {
	case c.lacks(after, j.grant) && after.Answered < before.Asked+*before.EndsIn-endSlack:
		return "it was done: the grant is gone before its end", after, true
	case j.invoke.Kind == history.Renew && has(after, j.grant) && after.EndsIn != nil &&
		after.Asked+*after.EndsIn > before.Answered+*before.EndsIn+endSlack:
		return "it was done: the grant ends later than before", after, true
	}
	return "", nil, true
}

// Finish returns the finding.
func (c *falseResults) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	if len(c.reads) == 0 {
		return f.NotApplicable(unread)
	}
	var n, chances, nothing int64
	for _, op := range c.ops {
		j := c.place(op)
		if j.invoke.Kind == history.Release && j.answer.Phase == history.Ok && j.before != nil &&
			c.lacks(j.before, j.grant) {
			nothing++
			f.Prove(c.witness("release_of_nothing", j, "the grant was already gone", j.before))
		}
		why, by, judged := c.contradiction(j)
		if judged {
			chances++
		}
		if why != "" {
			n++
			f.Prove(c.witness("false_result", j, why, by))
		}
	}
	for lock := range c.run.Locks {
		wrong, judged := c.grantedThoughFailed(uint16(lock))
		chances += judged
		n += int64(len(wrong))
		for _, w := range wrong {
			f.Prove(w)
		}
	}
	if chances == 0 {
		return f.NotApplicable("no acquire, renewal or release was answered before the service was asked")
	}
	out := f.Judged("false_results", n, chances)
	out.Counts["releases_of_nothing"] = new(nothing)
	return out
}

func (c *falseResults) witness(kind string, j judgedOp, why string, by *history.Observation) results.Witness {
	told := "ok"
	if j.answer.Phase != history.Ok {
		told = history.CodeName(j.answer.Code)
	}
	return results.Witness{
		Kind: kind, Lock: c.run.LockName(j.invoke.Lock), From: min(j.invoke.Time, by.Asked),
		To:     max(j.answer.Time, by.Answered),
		Events: c.events(j), Observed: []history.Observation{*by},
		Text: fmt.Sprintf("the %s of %s by %v, sent at %s, was answered %s at %s; asked at %s, the service said that %s: %s", j.invoke.Kind,
			c.run.LockName(j.invoke.Lock), j.grant.user, c.run.MS(j.invoke.Time), told, c.run.MS(j.answer.Time),
			c.run.MS(by.Asked), whose(by), why),
	}
}

// events returns the events that prove it: the grant, the operation and its answer.
func (c *falseResults) events(j judgedOp) []history.Event {
	var out []history.Event
	if e, ok := c.granted[j.grant]; ok {
		out = append(out, e)
	}
	return append(out, j.invoke, j.answer)
}

// whose says who has the lock by a reading.
func whose(o *history.Observation) string {
	switch {
	case o.Answer == "none":
		return "nobody has it"
	case o.User != nil:
		return fmt.Sprintf("%v has it", *o.User)
	}
	return fmt.Sprintf("%q has it", o.Answer)
}
