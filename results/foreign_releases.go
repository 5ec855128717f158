// Foreign releases: no release takes away the grant of another user.
//
// A release that was answered ok, of a user who was not entitled itself, whose whole interval lies inside another
// user's entitled hold, and which that user then misses: a third grant begins inside that hold, or its own renewal or
// release is certainly not held before its validity ended. The ok alone proves nothing: some services say ok for a key
// that is gone.
//
// It cannot see a foreign release that its victim never missed, nor one whose answer never came; and where the service
// lost the victim's grant by itself just then, it cannot tell the two apart.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

// giving is a release that is under way.
type giving struct {
	op       uint32
	invoke   history.Event
	mode     uint8
	entitled bool  // the user itself was, when it began
	own      *hold // what it gave back; nil when it had lost it before
}

// suspect is a release that may have freed the grant of others; one that is confirmed is counted once.
type suspect struct {
	giving
	ok   history.Event
	done bool
}

// victim is a hold inside which a suspect lies.
type victim struct {
	hold *hold
	by   []*suspect
}

type foreignReleases struct {
	run     Run
	t       *tracker
	gives   byUser[giving]
	victims map[*hold]*victim
	ending  byUser[*victim] // whose own release is under way
	n       int64
	list    shortlist
}

func newForeignReleases(run Run) Checker {
	c := &foreignReleases{run: run, victims: map[*hold]*victim{}, list: shortlist{room: MaxWitnesses}}
	c.t = newTracker(run, c)
	return c
}

// Observe takes the next event.
func (c *foreignReleases) Observe(e *history.Event) {
	switch {
	case e.Kind == history.Release && e.Phase == history.Invoke:
		c.invoke(e)
	case e.Kind == history.Release:
		c.outcome(e)
		c.refused(*c.ending.at(e.User), e)
		*c.ending.at(e.User) = nil
	case e.Kind == history.Renew && len(c.victims) > 0:
		if h := c.t.open(e.User, e.Grant); h != nil {
			c.refused(c.victims[h], e)
		}
	default:
	}
	c.t.observe(e)
}

func (c *foreignReleases) invoke(e *history.Event) {
	g := giving{op: e.Op, invoke: *e, mode: e.Mode}
	if h := c.t.open(e.User, e.Grant); h != nil {
		g.own, g.mode = h, h.mode
		g.entitled = entitledFrom(h, e.Time)
	}
	*c.gives.at(e.User) = g
}

// entitledFrom tells whether the hold's validity reaches t or goes beyond; in doubt, it does.
func entitledFrom(h *hold, t int64) bool {
	n := len(h.spans)
	return n > 0 && later(h.spans[n-1].until, h.err) > t
}

// outcome looks, when a release was answered ok, for holds of others that it lies inside.
func (c *foreignReleases) outcome(e *history.Event) {
	g := c.gives.at(e.User)
	if g.op != e.Op || g.op == 0 {
		return
	}
	given := *g
	*g = giving{}
	if e.Phase != history.Ok || given.entitled || int(e.Lock) >= len(c.t.locks) {
		return
	}
	var s *suspect
	for _, v := range c.t.locks[e.Lock] {
		if v.user == e.User || !conflict(v.mode, given.mode) || v.start+2*c.t.worst >= given.invoke.Time ||
			!v.entitled(given.invoke.Time-c.t.worst, e.Time+c.t.worst) {
			continue
		}
		if s == nil {
			s = &suspect{giving: given, ok: *e}
		}
		if c.victims[v] == nil {
			c.victims[v] = &victim{hold: v}
		}
		c.victims[v].by = append(c.victims[v].by, s)
	}
	if s == nil {
		return
	}
	for _, w := range c.t.locks[e.Lock] {
		c.third(w)
	}
}

func (c *foreignReleases) began(h *hold) {
	if len(c.victims) > 0 {
		c.third(h)
	}
}

// third confirms what the hold w proves: it was granted inside the entitled hold of a victim, after the release began.
func (c *foreignReleases) third(w *hold) {
	for _, k := range c.t.locks[w.lock] {
		v := c.victims[k]
		if v == nil || k == w || k.user == w.user || !conflict(k.mode, w.mode) || !k.entitled(w.start+w.err, w.start+w.err) {
			continue
		}
		for _, s := range v.by {
			if w.start-w.err > s.invoke.Time+c.t.worst {
				c.confirm(s, v, w, nil)
			}
		}
	}
}

// refused confirms what a victim's own renewal or release proves that was certainly not held.
func (c *foreignReleases) refused(v *victim, e *history.Event) {
	missed := e.Phase == history.Fail && (e.Code == history.CodeNotHeld || e.Code == history.CodeLost)
	if v == nil || !missed || !v.hold.entitled(e.Time, e.Time) {
		return
	}
	for _, s := range v.by {
		c.confirm(s, v, nil, e)
	}
}

func (c *foreignReleases) takenBack(*hold, int64) {}

func (c *foreignReleases) ended(h *hold) {
	if v := c.victims[h]; v != nil {
		delete(c.victims, h)
		if h.over.Kind == history.Release {
			*c.ending.at(h.user) = v
		}
	}
}

// confirm counts a suspect once. Exactly one of third and refusal is set.
func (c *foreignReleases) confirm(s *suspect, v *victim, third *hold, refusal *history.Event) {
	if s.done {
		return
	}
	s.done = true
	c.n++
	p := proof{
		kind: "foreign_release", from: s.invoke.Time, to: s.ok.Time, holds: []*hold{v.hold},
		events: []history.Event{s.invoke, s.ok},
	}
	how := ""
	if third != nil {
		p.holds, p.to = append(p.holds, third), max(p.to, third.start)
		how = fmt.Sprintf("%v was granted it at %s", third.user, c.run.ms(third.start))
	} else {
		p.events, p.to = append(p.events, *refusal), refusal.Time
		how = fmt.Sprintf("its own %s was told %s at %s", refusal.Kind, history.CodeName(refusal.Code), c.run.ms(refusal.Time))
	}
	if s.own != nil && s.own != third {
		p.holds = append(p.holds, s.own)
	}
	p.text = func() string {
		return fmt.Sprintf("%v, not entitled itself, released %s from %s to %s and was told ok, while %v was entitled to it; then %s",
			s.invoke.User, lockName(c.run, v.hold.lock), c.run.ms(s.invoke.Time), c.run.ms(s.ok.Time), v.hold.user, how)
	}
	c.list.add(p)
}

// Finish returns the finding.
func (c *foreignReleases) Finish() Finding {
	c.t.finish()
	return Finding{
		Checker: "foreign_releases", Verdict: verdictOf(c.n),
		Counts:    map[string]*int64{"foreign_releases": count(c.n)},
		Witnesses: c.list.witnesses(c.run),
	}
}
