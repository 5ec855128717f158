package oracle

import (
	"slices"

	"github.com/lockquake/lockquake/history"
)

// effects counts what the resource did for whom.
func (j *judge) effects(counts map[string]int64) {
	var stale, saves, unordered, refused, seen int64
	for i, e := range j.events {
		h := j.grants[key{e.User, e.Grant}]
		if e.Kind != history.EffectRead && e.Kind != history.EffectWrite || e.Phase == history.Info || h == nil || h.openAt > i {
			continue
		}
		seen++
		late, unplaced := j.place(i, h)
		if late && j.run.Resource != "" && (e.Phase == history.Ok || e.Code == history.CodeFenced) {
			counts["chances:stale_writes"]++
		}
		switch {
		case e.Phase == history.Fail && e.Code == history.CodeFenced && late:
			saves++
		case e.Phase == history.Fail && e.Code == history.CodeFenced:
			refused++
		case e.Phase == history.Ok && e.Kind == history.EffectWrite && late:
			stale++
		case e.Phase == history.Ok && e.Kind == history.EffectWrite && unplaced:
			unordered++
		}
		if e.Phase == history.Ok {
			h.touchAt = min(h.touchAt, i)
		}
	}
	if j.run.Resource != "" && seen > 0 {
		counts["stale_writes"], counts["fence_saves"], counts["unordered_effects"], counts["false_refusals"] = stale, saves, unordered, refused
	}
}

// place looks for a hold that touched the resource before position i and is later than h, or cannot be placed.
func (j *judge) place(i int, h *hold) (late, unplaced bool) {
	for _, k := range j.holds {
		if k == h || k.touchAt >= i || !exclusive(h, k) {
			continue
		}
		tell := j.run.Token == "service" && h.Token > 0 && k.Token > 0 && h.Token != k.Token
		before := later(h, k, i)
		late = late || later(k, h, i) || tell && k.Token > h.Token && !before
		unplaced = unplaced || !before && !tell
	}
	return late, unplaced && !late
}

// foreign counts the releases that took a hold away from another user.
func (j *judge) foreign(counts map[string]int64) {
	var n int64
	for _, r := range j.releases {
		if r.ok != forever && !r.entitled && slices.ContainsFunc(j.holds, func(v *hold) bool { return j.robbed(v, r) }) {
			n++
		}
	}
	counts["foreign_releases"] = n
}

// robbed tells whether a release lies inside an entitled hold of another user, who misses it afterwards.
func (j *judge) robbed(v *hold, r *release) bool {
	w := j.worst
	if v.User == r.User || v.Lock != r.Lock || v.Mode == 1 && r.Mode == 1 ||
		v.Time+2*w >= r.Time || !v.covers(r.Time-w, r.ok+w) || v.held().to <= r.ok+w {
		return false
	}
	for _, x := range j.holds {
		if x.User != v.User && exclusive(x, v) && x.Time-x.err > r.Time+w &&
			(x.fresh || x.Value-x.err > r.Time+w) && v.covers(x.Time-x.err, x.Time+x.err) && x.Time+x.err < v.held().to {
			return true
		}
	}
	return slices.ContainsFunc(j.refusals, func(f refusal) bool { return f.hold == v && f.time > r.ok && v.covers(f.time, f.time) })
}
