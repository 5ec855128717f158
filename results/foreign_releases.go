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
	"slices"

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

// victim is a hold inside which suspects lie. What it missed is collected until it is over: only then it is known for how long it was
// held and entitled, for a death is dated back and a validity may be taken back.
type victim struct {
	hold    *hold
	by      []*suspect
	thirds  []*hold         // granted inside it
	refused []history.Event // its own renewals and release
	release uint32          // Op of its own release, once that is under way
}

// maxMissed bounds what is kept of what a victim missed.
const maxMissed = 1 << 10

// maxForeignLooks bounds how often a release is held against a hold, and a hold against another. Beyond, the count is a lower bound.
const maxForeignLooks = 1 << 23

type foreignReleases struct {
	run     Run
	t       *tracker
	gives   byUser[giving]
	victims map[*hold]*victim
	ending  byUser[*victim] // whose own release is under way
	chances int64
	looks   int
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
		c.convict(*c.ending.at(e.User)) // its outcome never came
		*c.ending.at(e.User) = nil
		c.invoke(e)
	case e.Kind == history.Release:
		c.outcome(e)
		if v := *c.ending.at(e.User); v != nil && v.release == e.Op {
			v.refuse(e)
			c.convict(v)
			*c.ending.at(e.User) = nil
		}
	case e.Kind == history.Renew && len(c.victims) > 0:
		if v := c.victims[c.t.open(e.User, e.Grant)]; v != nil {
			v.refuse(e)
		}
	default:
	}
	c.t.observe(e)
}

func (c *foreignReleases) invoke(e *history.Event) {
	g := giving{op: e.Op, invoke: *e, mode: e.Mode}
	if h := c.t.open(e.User, e.Grant); h != nil {
		g.own, g.mode = h, h.mode
		g.entitled = len(h.spans) > 0 && later(h.until(), h.err) > e.Time // in doubt, it is
	}
	if !g.entitled {
		c.chances++
		c.watch(e, g.mode)
	}
	*c.gives.at(e.User) = g
}

// watch begins to collect what the others miss that hold the lock: a third may come and go before the release is answered.
func (c *foreignReleases) watch(e *history.Event, mode uint8) {
	if int(e.Lock) >= len(c.t.locks) {
		return
	}
	for _, h := range c.t.locks[e.Lock] {
		if c.looks++; c.looks > maxForeignLooks {
			return
		}
		if h.user != e.User && conflict(h.mode, mode) && c.victims[h] == nil {
			c.victims[h] = &victim{hold: h}
		}
	}
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
	s := &suspect{giving: given, ok: *e}
	for _, h := range c.t.locks[e.Lock] {
		if c.looks++; c.looks > maxForeignLooks {
			return
		}
		if v := c.victims[h]; v != nil && h.user != e.User && conflict(h.mode, given.mode) { // whether it lies inside is known at the end
			v.by = append(v.by, s)
		}
	}
}

// inside tells whether a release lies wholly inside the time in which h was held and entitled, by all that is known so far.
func (c *foreignReleases) inside(s *suspect, h *hold) bool {
	w := c.t.worst
	return h.start+2*w < s.invoke.Time && s.ok.Time+w < later(h.end, -h.err) && h.entitled(s.invoke.Time-w, s.ok.Time+w)
}

func (c *foreignReleases) began(h *hold) {
	if len(c.victims) == 0 {
		return
	}
	for _, k := range c.t.locks[h.lock] {
		if c.looks++; c.looks > maxForeignLooks {
			return
		}
		if v := c.victims[k]; v != nil {
			v.third(h)
		}
	}
}

// third keeps a hold that was granted while the victim held.
func (v *victim) third(h *hold) {
	if h != v.hold && h.user != v.hold.user && conflict(h.mode, v.hold.mode) && len(v.thirds) < maxMissed && !slices.Contains(v.thirds, h) {
		v.thirds = append(v.thirds, h)
	}
}

// refuse keeps the outcome of the victim's own renewal or release, where it was certainly not held.
func (v *victim) refuse(e *history.Event) {
	if e.Phase == history.Fail && (e.Code == history.CodeNotHeld || e.Code == history.CodeLost) && len(v.refused) < maxMissed {
		v.refused = append(v.refused, *e)
	}
}

func (c *foreignReleases) takenBack(*hold, int64) {}

// ended convicts when it is known for how long the victim held; one that gives its lock back may still be told that it has none.
func (c *foreignReleases) ended(h *hold) {
	v := c.victims[h]
	if v == nil {
		return
	}
	delete(c.victims, h)
	if h.over.Kind == history.Release {
		v.release = h.over.Op
		*c.ending.at(h.user) = v
		return
	}
	c.convict(v)
}

// convict confirms the suspects of a victim that missed what they released.
func (c *foreignReleases) convict(v *victim) {
	if v == nil {
		return
	}
	for _, s := range v.by {
		if c.looks += 1 + len(v.thirds); c.looks > maxForeignLooks {
			return
		}
		if s.done || !c.inside(s, v.hold) {
			continue
		}
		if third, refusal, missed := c.missed(s, v); missed {
			c.confirm(s, v, third, refusal)
		}
	}
}

// missed finds what shows that the victim's grant was gone after s: a third grant inside the hold, or a refusal of its own. A third that
// came into hand when it was over is none: its answer may have been on its way since before the victim's grant.
func (c *foreignReleases) missed(s *suspect, v *victim) (third *hold, refusal *history.Event, ok bool) {
	h := v.hold
	for _, x := range v.thirds {
		late := !x.fresh && x.issued-x.err <= s.invoke.Time+c.t.worst
		if !late && x.start-x.err > s.invoke.Time+c.t.worst && x.start+x.err < later(h.end, -h.err) && h.entitled(x.start-x.err, x.start+x.err) {
			return x, nil, true
		}
	}
	for i := range v.refused {
		if e := &v.refused[i]; e.Time > s.ok.Time && h.entitled(e.Time, e.Time) {
			return nil, e, true
		}
	}
	return nil, nil, false
}

// confirm counts a suspect. Exactly one of third and refusal is set.
func (c *foreignReleases) confirm(s *suspect, v *victim, third *hold, refusal *history.Event) {
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
	for _, v := range c.ending.all() {
		c.convict(*v)
	}
	f := Finding{
		Checker: "foreign_releases", Verdict: verdictOf(c.n),
		Counts:    map[string]*int64{"foreign_releases": count(c.n)},
		Chances:   map[string]Chances{"foreign_releases": {c.chances, "releases by users who were not entitled"}},
		Witnesses: c.list.witnesses(c.run),
	}
	if c.looks > maxForeignLooks {
		f.Warnings = append(f.Warnings, "so many holds overlap that not all were held against each release: the count is a lower bound")
		if c.n == 0 {
			f.Verdict = Unknown
		}
	}
	return f
}
