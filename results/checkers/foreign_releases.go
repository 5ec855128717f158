// Foreign releases: no release takes away the grant of another user.
//
// A release counts when all of this is true:
//   - it was answered ok, and its user was not entitled itself
//   - its whole interval lies inside the entitled hold of another user, the victim
//   - the victim then misses its grant: a third user is granted the lock inside that hold, or the victim's own
//     renewal or release is certainly not held before its validity ended
//
// Example: A outlives its TTL, B is granted the lock at 3 s, valid until 5 s. A releases by a plain DEL from 3.5 s to
// 3.6 s and gets an ok. If C is granted the lock at 4 s, A freed B's lock. If no user is, and B releases at 4.5 s and
// gets an ok, nothing was missed. The ok alone proves nothing: some services answer ok for a key that is gone.
//
// It cannot see a foreign release that its victim never missed, nor one whose answer never came. If the service lost
// the victim's grant by itself just then, it cannot tell the two apart.

package checkers

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// openRelease is a release in progress.
type openRelease struct {
	op       uint32
	invoke   history.Event
	mode     uint8
	entitled bool  // the user itself was entitled when the release began
	own      *hold // the released hold; nil if the user had lost it before, or was entitled
}

// suspect is a release that may have freed others' grants; a confirmed one counts once.
type suspect struct {
	openRelease
	ok   history.Event
	done bool
}

// victim is a hold that contains suspects. Proofs are collected until the hold is over. Only then is its held and
// entitled time known, because a death is dated back and a validity may be revoked.
type victim struct {
	hold    *hold
	by      []*suspect
	thirds  []*hold         // granted inside it
	refused []history.Event // its own renewals and release
	release uint32          // Op of its own release, once that is in progress
}

// maxMissed bounds the proofs kept of a victim's loss.
const maxMissed = 1 << 10

// maxForeignLooks bounds how often releases and holds are compared. Beyond it the count is a lower bound.
const maxForeignLooks = 1 << 23

type foreignReleases struct {
	run     results.Run
	t       *tracker
	gives   users.Table[openRelease]
	victims map[*hold]*victim
	ending  users.Table[*victim] // whose own release is in progress
	chances int64
	looks   evidence.Looks
	n       int64
	list    evidence.Shortlist
}

var foreignReleasesKind = results.CheckerKind{
	Name: "foreign_releases", New: newForeignReleases, Follows: holdsOnce, Grants: true,
	Doc: "No release ends the grant of another user.",
	Counts: []results.Quantity{
		{
			Name: "foreign_releases", Doc: "releases that ended an entitled hold of another user; if one leads to the next, the length of the cascade",
			Tone: results.Violation, Of: "releases by users who were not entitled, while another user was", First: 7,
			NeedsEnds: true, Explains: []string{"double_grants", "stale_writes", "lost_updates"},
		},
	},
	Witnesses: []results.WitnessKind{{Name: "foreign_release", Draw: results.DrawRelease}},
}

func newForeignReleases(run results.Run) results.Checker {
	return &foreignReleases{
		run: run, victims: map[*hold]*victim{}, looks: evidence.Looks{Most: maxForeignLooks},
	}
}

func (c *foreignReleases) follow(t *tracker) watch {
	c.t = t
	return watch{began: c.began, ended: c.ended, left: c.ended}
}

// Observe takes the next event.
func (c *foreignReleases) Observe(e *history.Event) {
	switch {
	case e.Kind == history.Release && e.Phase == history.Invoke:
		c.confirmAll(*c.ending.At(e.User)) // its outcome never arrived
		*c.ending.At(e.User) = nil
		c.invoke(e)
	case e.Kind == history.Release:
		c.outcome(e)
		if v := *c.ending.At(e.User); v != nil && v.release == e.Op {
			v.refuse(e)
			c.confirmAll(v)
			*c.ending.At(e.User) = nil
		}
	case e.Kind == history.Renew:
		if v := c.victims[c.t.open(e.User, e.Grant)]; v != nil {
			v.refuse(e)
		}
	default:
	}
}

func (c *foreignReleases) invoke(e *history.Event) {
	g := openRelease{op: e.Op, invoke: *e, mode: e.Mode}
	if h := c.t.open(e.User, e.Grant); h != nil {
		g.mode, g.entitled = h.mode, h.mayLast(e.Time) // in doubt, it is
		if !g.entitled {
			g.own, h.pinned = h, true
		}
	}
	if !g.entitled && c.watch(e, g.mode) {
		c.chances++
	}
	*c.gives.At(e.User) = g
}

// watch makes every other holder of the lock a possible victim, and reports whether one may be entitled. It starts at
// the release's invoke: a third user may come and go before the release is answered.
func (c *foreignReleases) watch(e *history.Event, mode uint8) (entitled bool) {
	for _, h := range c.t.held(e.Lock) {
		if !c.looks.Take(1) {
			break
		}
		if h.user == e.User || !conflict(h.mode, mode) {
			continue
		}
		entitled = entitled || h.mayLast(e.Time)
		if c.victims[h] == nil {
			c.victims[h], h.pinned = &victim{hold: h}, true
		}
	}
	return entitled
}

// outcome looks up, when a release was answered ok, the holds of others that contain it.
func (c *foreignReleases) outcome(e *history.Event) {
	g := c.gives.At(e.User)
	if g.op != e.Op || g.op == 0 {
		return
	}
	given := *g
	*g = openRelease{}
	if e.Phase != history.Ok || given.entitled {
		return
	}
	s := &suspect{openRelease: given, ok: *e}
	for _, h := range c.t.held(e.Lock) {
		if !c.looks.Take(1) {
			return
		}
		// whether they contain it is known at the end
		if v := c.victims[h]; v != nil && h.user != e.User && conflict(h.mode, given.mode) {
			v.by = append(v.by, s)
		}
	}
}

// inside reports whether a release lies wholly inside the time in which h was held and entitled, by what is known so
// far.
func (c *foreignReleases) inside(s *suspect, h *hold) bool {
	from, to := c.t.clocks.Early(s.invoke.User, s.invoke.Time), c.t.clocks.Late(s.ok.User, s.ok.Time)
	return h.latest(h.start) < from && to < h.earliest(h.end) && h.entitled(from, to)
}

func (c *foreignReleases) began(h *hold) {
	if len(c.victims) == 0 {
		return
	}
	for _, k := range c.t.held(h.lock) {
		if !c.looks.Take(1) {
			return
		}
		if v := c.victims[k]; v != nil {
			v.third(h)
		}
	}
}

// third keeps a hold that was granted while the victim held.
func (v *victim) third(h *hold) {
	if h != v.hold && h.user != v.hold.user && conflict(h.mode, v.hold.mode) && len(v.thirds) < maxMissed &&
		!slices.Contains(v.thirds, h) {
		v.thirds, h.pinned = append(v.thirds, h), true
	}
}

// refuse keeps the outcome of the victim's own renewal or release, if the grant was certainly not held.
func (v *victim) refuse(e *history.Event) {
	if e.Phase == history.Fail && notHeld(e.Code) && len(v.refused) < maxMissed {
		v.refused = append(v.refused, *e)
	}
}

// ended confirms suspects once the victim's held time is known. A victim that releases is kept until its release is
// answered: the answer may be that it has no grant.
func (c *foreignReleases) ended(h *hold) {
	v := c.victims[h]
	if v == nil {
		return
	}
	delete(c.victims, h)
	if h.over.Kind == history.Release {
		v.release = h.over.Op
		*c.ending.At(h.user) = v
		return
	}
	c.confirmAll(v)
}

// confirmAll confirms the suspects whose release the victim missed.
func (c *foreignReleases) confirmAll(v *victim) {
	if v == nil {
		return
	}
	for _, s := range v.by {
		if !c.looks.Take(1 + len(v.thirds)) {
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

// missed finds the proof that the victim's grant was gone after s: a third grant inside the hold, or a refusal of the
// victim's own call. A third grant that was over when it came into hand proves nothing: its answer may have been on
// its way since before the victim's grant.
func (c *foreignReleases) missed(s *suspect, v *victim) (third *hold, refusal *history.Event, ok bool) {
	h := v.hold
	from, to := c.t.clocks.Late(s.invoke.User, s.invoke.Time), c.t.clocks.Late(s.ok.User, s.ok.Time)
	for _, x := range v.thirds {
		late := !x.fresh && x.earliest(x.issued) <= from
		if !late && x.earliest(x.start) > from && x.latest(x.start) < h.earliest(h.end) &&
			h.entitled(x.earliest(x.start), x.latest(x.start)) {
			return x, nil, true
		}
	}
	for i := range v.refused {
		if e := &v.refused[i]; h.earliest(e.Time) > to && h.entitled(e.Time, e.Time) {
			return nil, e, true
		}
	}
	return nil, nil, false
}

// confirm counts a suspect. Exactly one of third and refusal is set.
func (c *foreignReleases) confirm(s *suspect, v *victim, third *hold, refusal *history.Event) {
	s.done = true
	c.n++
	p := evidence.Proof{
		Kind: "foreign_release", From: s.invoke.Time, To: s.ok.Time, Holds: []evidence.Hold{v.hold},
		Events: []history.Event{s.invoke, s.ok},
	}
	how := ""
	if third != nil {
		p.Holds, p.To = append(p.Holds, third), max(p.To, third.start)
		how = fmt.Sprintf("%v was granted the lock at %s", third.user, c.run.MS(third.start))
	} else {
		p.Events, p.To = append(p.Events, *refusal), refusal.Time
		how = fmt.Sprintf("its own %s was answered %s at %s", refusal.Kind, history.CodeName(refusal.Code),
			c.run.MS(refusal.Time))
	}
	if s.own != nil && s.own != third {
		p.Holds = append(p.Holds, s.own)
	}
	p.Text = func() string {
		return fmt.Sprintf("%v, not entitled itself, released %s from %s to %s with the answer ok, while %v was entitled to it; then %s",
			s.invoke.User, c.run.LockName(v.hold.lock), c.run.MS(s.invoke.Time), c.run.MS(s.ok.Time), v.hold.user, how)
	}
	c.list.Add(p)
}

// Finish returns the finding.
func (c *foreignReleases) Finish() results.Finding {
	if c.run.Permits > 1 {
		return results.Finding{}.NotApplicable("the lock has several permits, and a release frees no particular user's")
	}
	for _, v := range c.ending.All() {
		c.confirmAll(*v)
	}
	f := results.Finding{Witnesses: c.list.Witnesses(c.run)}.Judged("foreign_releases", c.n, c.chances)
	c.looks.Bound(&f, c.n, "too many holds overlap to compare all of them with each release: the count is a lower bound")
	return f
}
