// Package oracle is a second judge, for tests only. It counts what package results counts, straight from the
// definitions: for each hold it looks through all events and all other holds. It is slow and short, and shares
// nothing with results except the types of a history.
package oracle

import (
	"math"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// Run is the oracle's input beside the events.
type Run struct {
	Token      string        // "none", "service" or "home-made"
	Resource   string        // "" if nothing is protected
	Increments bool          // each acknowledged write adds one
	Writes     string        // "sales", "seats", "transfers", "elements" or ""
	Stock      int64         // units of each lock, for sales
	Permits    int           // how many users may hold one lock at once; 0 is 1
	Errors     map[int]int64 // ns: the largest error of a client's clock, by the client's index
	Dead       map[int]bool  // clients that were killed, by index
}

// judge appends one event that never happens. If an event is not found, its position is the position of that one.
type judge struct {
	Run
	events []history.Event
	holds  []*hold
	counts map[string]int64
}

// Judge returns the counts of a run whose events are in the order of time; counts that do not apply are missing.
func Judge(run Run, events []history.Event) map[string]int64 {
	never := history.Event{Kind: history.Clean, Phase: history.Info, Time: math.MaxInt64}
	j := &judge{Run: run, events: append(afterGrants(events), never), counts: map[string]int64{}}
	for i, e := range j.events {
		if e.Kind == history.Acquire && e.Phase == history.Ok {
			j.holds = append(j.holds, j.hold(i))
		}
	}
	for i, h := range j.holds {
		if j.Permits > 1 {
			j.surplus(h)
			j.crowd(h)
		} else {
			j.overlaps(h, j.holds[:i])
			j.contest(h)
		}
		j.tokens(h)
		j.releases(h)
		j.effects(h)
	}
	j.writes()
	reached := run.Resource != "" && slices.ContainsFunc(events, reaches)
	j.judged(reached, "stale_writes", "late_effects", "fence_saves", "unordered_effects", "false_refusals")
	j.judged(true, "double_grants", "overlapping_holds")
	j.judged(run.Permits <= 1, "possible_overlaps", "foreign_releases")
	j.judged(run.Token == "service" || run.Token == "home-made", "token_regressions")
	return j.counts
}

// afterGrants moves the engine's events about a grant behind the grant if a wrong clock puts them before it.
func afterGrants(events []history.Event) (out []history.Event) {
	for i, e := range events {
		of := func(o history.Event) bool { // reports whether o is an event of the engine about the grant e
			told := o.Kind == history.Ended || o.Kind == history.Dead
			return told && e.Kind == history.Acquire && e.Phase == history.Ok && o.User == e.User && o.Grant == e.Op
		}
		early := slices.DeleteFunc(slices.Clone(events[:i]), func(o history.Event) bool { return !of(o) })
		out = append(append(slices.DeleteFunc(out, of), e), early...)
	}
	return out
}

// add adds one to a count if is is true.
func (j *judge) add(name string, is bool) {
	if is {
		j.counts[name]++
	}
}

// judged sets missing counts to 0, or deletes the counts if is is false.
func (j *judge) judged(is bool, names ...string) {
	for _, name := range names {
		if j.counts[name] += 0; !is {
			delete(j.counts, name)
		}
	}
}

// first returns the position of the first event from a position on for which so is true.
func (j *judge) first(from int, so func(e history.Event) bool) int {
	return from + slices.IndexFunc(j.events[from:], func(e history.Event) bool {
		return e.Kind == history.Clean ||
			so(e)
	})
}

// outcome returns the position of the outcome of the operation invoked at a position.
func (j *judge) outcome(invoke int) int {
	o := j.events[invoke]
	return j.first(invoke+1, func(e history.Event) bool { return e.User == o.User && e.Kind == o.Kind && e.Op == o.Op })
}

// hold is a grant, with the positions of its events.
type hold struct {
	history.Event // the acquire ok; Value is when the request was sent
	// Positions of events:
	//   asked    the acquire's invoke
	//   at       the acquire's ok
	//   over     the user began to release, learned of its loss or was seen dead
	//   gone     the grant was lost, its user dead, or its release had an outcome
	//   touched  the resource served it for the first time
	asked, at, over, gone, touched int
	// Times: it was held for sure between from and to; told is when it was seen to be over; err is the error of its
	// client's clock.
	from, to, told, err int64
	news                []news // of its validity
	known               bool   // some news names an end
	ended               bool   // some news says when a session was last certain to be alive
	fresh               bool   // entitled when granted, and not reported over at that very moment
}

// news is the time at which a user learns of an end of its grant's validity, and that end.
type news struct{ time, end int64 }

// owns reports whether an event is about the hold.
func (h *hold) owns(e history.Event) bool { return e.User == h.User && e.Grant == h.Grant }

// reaches reports whether an event is an access that reached the resource.
func reaches(e history.Event) bool {
	return (e.Kind == history.EffectRead || e.Kind == history.EffectWrite) && e.Phase != history.Info
}

// did reports whether an event is an access by the hold. If clocks err, its grant may be stamped later.
func (h *hold) did(e history.Event) bool { return reaches(e) && h.owns(e) && e.Time >= h.Time-h.err }

// hold returns the grant of the acquire ok at a position.
func (j *judge) hold(at int) *hold {
	h := &hold{Event: j.events[at], at: at, err: j.Errors[j.events[at].User.Client()]}
	next := func(k history.Kind, ps ...history.Phase) int {
		return j.first(at+1, func(e history.Event) bool {
			return e.Kind == k && slices.Contains(ps, e.Phase) &&
				h.owns(e)
		})
	}
	taken := func(from int64) int { // an event without a grant is about all holds of the user
		of := func(e history.Event) bool { return h.owns(e) || e.User == h.User && e.Grant == 0 }
		return j.first(at+1, func(e history.Event) bool {
			return (e.Kind == history.Lost || e.Kind == history.Dead) && of(e) && e.Time >= from
		})
	}
	h.asked = j.first(0, func(e history.Event) bool {
		return e.Kind == history.Acquire && e.User == h.User &&
			e.Op == h.Op
	})
	h.over = min(taken(0), next(history.Release, history.Invoke))
	// If clocks err, a death may be recorded before the grant; it does not show when the grant was gone.
	h.gone = min(taken(h.Time), next(history.Release, history.Ok, history.Fail, history.Info))
	h.touched = j.first(0, func(e history.Event) bool { return h.did(e) && e.Phase == history.Ok })
	over := j.events[h.over]
	h.told, h.from, h.to = over.Time, h.Time+h.err, over.Time
	if over.Kind == history.Dead && over.Value > 0 { // when its client was certainly alive
		h.to = min(h.to, over.Value)
	}
	for _, e := range j.events { // if its death was not seen, its last event counts
		if over.Kind == history.Clean && j.Dead[h.User.Client()] && e.User.Client() == h.User.Client() &&
			(e.Kind <= history.Write || e.Kind == history.Renewed || e.Kind == history.Lost ||
				e.Kind == history.Reenter || e.Kind == history.Leave) {
			h.to = e.Time
		}
	}
	h.to = max(h.to, h.Time) - h.err
	h.fresh = h.Valid > h.Time && h.told > h.Time
	ended := news{math.MinInt64, 0}
	for _, e := range j.events[at:h.over] {
		named := e.Valid != history.ValidUnknown
		if e.Valid == history.ValidUnknown {
			e.Valid = e.Time
		}
		renewed := (e.Kind == history.Renew || e.Kind == history.Reenter) && e.Phase == history.Ok ||
			e.Kind == history.Renewed
		// it may have been learned before the end: it does not undo the end
		if renewed && e.Time-h.err <= ended.time {
			e.Valid = min(e.Valid, ended.end)
		}
		if h.owns(e) && e.Kind == history.Ended {
			ended, h.ended, h.fresh = news{e.Time, e.Valid}, true, h.fresh && e.Valid > h.Time
		}
		if h.owns(e) && (e.Kind == history.Acquire || renewed || e.Kind == history.Ended) {
			h.news, h.known = append(h.news, news{e.Time, e.Valid}), h.known || named
		}
	}
	return h
}

// entitled reports whether the latest news by time t has an end of validity after t, and no later news takes that
// back.
func (h *hold) entitled(t int64) (is bool) {
	for _, n := range h.news {
		if n.time <= t || n.end <= t {
			is = n.end > t
		}
	}
	return is
}

// lapsed reports whether the user was certainly not entitled at a time of the resource.
func (h *hold) lapsed(t int64) bool {
	entitled := h.entitled(t-h.err) || h.entitled(t+h.err) || slices.ContainsFunc(h.news, func(n news) bool {
		return t-h.err <= n.time && n.time <= t+h.err && h.entitled(n.time)
	})
	return h.known && !h.ended && !entitled
}

// covers reports whether the user was entitled from one time to another, both included, whatever its clock's error.
func (h *hold) covers(from, to int64) bool {
	from, to = from-h.err, to+h.err
	return h.entitled(from) && !slices.ContainsFunc(h.news,
		func(n news) bool { return from < n.end && n.end <= to && !h.entitled(n.end) })
}

// exclude reports whether two holds are of one lock and not both shared. With several permits no two exclude each
// other.
func (j *judge) exclude(a, b *hold) bool {
	return j.Permits <= 1 && a.Lock == b.Lock && (a.Mode == 0 || b.Mode == 0)
}

// later reports whether b is later than a: a was granted before b was requested; or a was over when b was granted,
// entitled.
func (j *judge) later(b, a *hold) bool {
	asked := b.Value > 0 && a.Time+a.err < b.Value-b.err
	over := a.over < len(j.events)-1 && a.told+a.err <= b.Time-b.err && a.Time+a.err < b.Time-b.err
	return a != b && a.Lock == b.Lock && (asked || over && b.fresh && j.exclude(a, b))
}

// maybeLater reports whether b may be later than a, as known at a position, given the errors of the clocks. Without
// errors it agrees with later.
func (j *judge) maybeLater(b, a *hold, now int) bool {
	if a.err == 0 && b.err == 0 {
		return j.later(b, a)
	}
	told := j.events[min(a.over, now)].Time // its end may be under way
	return a.Time-a.err < b.Value+b.err || told-a.err <= b.Time+b.err && a.Time-a.err < b.Time+b.err
}

// overlaps counts the earlier holds that exclude this one and overlap with it: both entitled, both held, or possibly
// both held.
func (j *judge) overlaps(h *hold, before []*hold) {
	for _, k := range before {
		double, both := false, max(h.from, k.from) < min(h.to, k.to)
		for _, x := range []*hold{h, k} { // if they are ever entitled at once, they are when one of them begins to be
			for _, n := range x.news {
				t := n.time + x.err
				double = double || max(h.from, k.from) <= t && t < min(h.to, k.to) && h.covers(t, t) && k.covers(t, t)
			}
		}
		pair := h.User != k.User && j.exclude(h, k)
		j.add("double_grants", pair && double)
		j.add("overlapping_holds", pair && both && !double)
		gone, asked := j.events[k.gone].Time, j.events[h.asked].Time
		doubt := h.User.Client() != k.User.Client() && gone != math.MaxInt64 && gone+k.err > asked-h.err &&
			h.err+k.err > 0
		j.add("possible_overlaps", pair && !both && (k.gone > h.asked || doubt))
	}
}

// surplus counts the moments at which a hold of a lock with several permits begins, or begins to be entitled, while
// as many other users have it already. If two begin at once, the one of the higher user comes second.
func (j *judge) surplus(h *hold) {
	others := func(t int64, entitled bool) (n int) {
		users := map[history.User]bool{}
		for _, k := range j.holds {
			first := k.from == t || entitled && !k.covers(t-1, t-1)
			inside := k.Lock == h.Lock && k.User != h.User && k.from <= t && t < k.to && !(first && k.User > h.User)
			users[k.User] = users[k.User] || inside && (!entitled || k.covers(t, t))
		}
		for _, inside := range users {
			if inside {
				n++
			}
		}
		return n
	}
	begins := map[int64]bool{h.from: true}
	for _, n := range h.news {
		begins[n.time+h.err] = true
	}
	for t := range begins {
		inside := h.from <= t && t < h.to
		first := t == h.from || inside && !h.covers(t-1, t-1)
		double := inside && first && h.covers(t, t) && others(t, true) >= j.Permits
		j.add("double_grants", double)
		j.add("overlapping_holds", inside && t == h.from && !double && others(t, false) >= j.Permits)
	}
}

// crowd counts a hold if at some moment more users had or wanted its lock than it has permits.
func (j *judge) crowd(h *hold) {
	wanted := false
	for i := h.at; i < h.over; i++ {
		n := 0
		for _, k := range j.holds {
			if k.Lock == h.Lock && k.at <= i && i < k.over {
				n++
			}
		}
		for a, e := range j.events[:i+1] {
			asks := e.Kind == history.Acquire && e.Phase == history.Invoke && e.Lock == h.Lock
			if asks && j.outcome(a) > i {
				n++
			}
		}
		wanted = wanted || n > j.Permits
	}
	j.add("chances:overlapping_holds", wanted)
	j.add("chances:double_grants", wanted && h.fresh)
}

// contest counts a hold whose lock another user requested or held meanwhile, in a conflicting mode.
func (j *judge) contest(h *hold) {
	wanted := slices.ContainsFunc(j.holds, func(k *hold) bool {
		return k.User != h.User && j.exclude(k, h) &&
			k.at < h.over && k.over > h.at
	})
	for i, e := range j.events {
		asks := e.Kind == history.Acquire && e.Phase == history.Invoke && e.User != h.User && e.Lock == h.Lock &&
			(e.Mode == 0 || h.Mode == 0)
		wanted = wanted || asks && i < h.over && j.outcome(i) > h.at
	}
	j.add("chances:overlapping_holds", wanted)
	j.add("chances:double_grants", wanted && h.fresh)
}

// tokens counts a hold whose token is not above that of an earlier one; holders who share may have the same.
func (j *judge) tokens(h *hold) {
	earlier := func(k *hold) bool { return h.Token > 0 && k.Token > 0 && j.later(h, k) }
	low := func(k *hold) bool { return earlier(k) && (k.Token > h.Token || k.Token == h.Token && j.exclude(h, k)) }
	j.add("chances:token_regressions", slices.ContainsFunc(j.holds, earlier))
	j.add("token_regressions", slices.ContainsFunc(j.holds, low))
}

// releases counts releases that were answered ok and robbed another user. It counts only those of users not entitled,
// and repeated ones.
func (j *judge) releases(h *hold) {
	for i, e := range j.events {
		foreign := i != h.over || !slices.ContainsFunc(h.news,
			func(n news) bool { return h.entitled(max(n.time, e.Time-h.err)) })
		if e.Kind != history.Release || e.Phase != history.Invoke || !h.owns(e) || !foreign {
			continue
		}
		o := j.events[j.outcome(i)]
		robs := func(v *hold) bool { return v.User != h.User && j.exclude(v, h) && j.robbed(v, e.Time, o.Time, h.err) }
		j.add("foreign_releases", o.Phase == history.Ok && slices.ContainsFunc(j.holds, robs))
	}
}

// robbed reports whether a release lies inside an entitled hold whose user loses the lock by it before the hold ends.
// Either a third user is granted the lock through what the service did after the release, or the holder's own renewal
// or release is refused. err is the largest error of the release's times.
func (j *judge) robbed(v *hold, from, to, err int64) bool {
	missed := slices.ContainsFunc(j.holds, func(x *hold) bool {
		after := x.Time-x.err > from+err && (x.fresh || x.Value-x.err > from+err)
		return x.User != v.User && j.exclude(x, v) && after && x.Time+x.err < v.to &&
			v.covers(x.Time-x.err, x.Time+x.err)
	})
	for i, e := range j.events {
		own := e.Kind == history.Renew && i < v.over || e.Kind == history.Release && i == j.outcome(v.over)
		refused := e.Phase == history.Fail && (e.Code == history.CodeNotHeld || e.Code == history.CodeLost)
		missed = missed || own && refused && v.owns(e) && e.Time-v.err > to+err && v.covers(e.Time, e.Time)
	}
	return missed && v.Time+v.err < from-err && to+err < v.to && v.covers(from-err, to+err)
}

// effects counts the resource's accesses by a hold; it matters whether the resource had served a later hold.
func (j *judge) effects(h *hold) {
	for i, e := range j.events {
		if !h.did(e) || j.Resource == "" {
			continue
		}
		late, unplaced := j.overtaken(h, i)
		checked, served := e.Code == history.CodeConditional, e.Phase == history.Ok
		refused := e.Phase == history.Fail && (e.Code == history.CodeFenced || checked)
		right := late || h.lapsed(e.Time) || h.told < e.Time-h.err || checked && j.rewritten(h, i)
		rightful := e.Time < h.to && (!h.known || h.covers(e.Time, e.Time))
		j.add("chances:stale_writes", late && (served || refused))
		j.add("stale_writes", late && served && e.Kind == history.EffectWrite && !checked)
		j.add("late_effects", late && served && e.Kind == history.EffectWrite && checked)
		j.add("unordered_effects", unplaced && served && e.Kind == history.EffectWrite && !checked)
		j.add("fence_saves", refused && right)
		j.add("false_refusals", refused && rightful && !right)
	}
}

// rewritten reports whether another hold wrote between a hold's last access to the resource and a position.
func (j *judge) rewritten(h *hold, now int) (is bool) {
	for _, e := range j.events[:now] {
		if e.Lock == h.Lock && e.Phase == history.Ok &&
			(e.Kind == history.EffectRead || e.Kind == history.EffectWrite) {
			is = !h.did(e) && (is || e.Kind == history.EffectWrite)
		}
	}
	return is
}

// overtaken reports whether a later hold touched the resource before a position, or else a hold whose order is
// unknown. If times do not show the order, tokens of the service do.
func (j *judge) overtaken(h *hold, now int) (late, unplaced bool) {
	for _, k := range j.holds {
		if k == h || k.touched >= now || !j.exclude(h, k) {
			continue
		}
		tells := j.Token == "service" && h.Token > 0 && k.Token > 0 && h.Token != k.Token
		before := j.later(h, k)
		higher := tells && k.Token > h.Token && !before
		late = late || j.later(k, h) || higher && !j.maybeLater(h, k, now)
		unplaced = unplaced || !before && !tells || higher && j.maybeLater(h, k, now)
	}
	return late, unplaced && !late
}

// write is the value a user wrote, the value it had read last before that, and the outcome: Info if unknown.
type write struct {
	value, onto int64
	phase       history.Phase
}

// writesOf returns the writes under one lock. After a transfer its user knows the value that it wrote without
// reading.
func (j *judge) writesOf(lock uint16) (ws []write) {
	for i, e := range j.events {
		if e.Lock != lock || e.Kind != history.Write || e.Phase != history.Invoke {
			continue
		}
		w := write{value: e.Value, phase: j.events[j.outcome(i)].Phase}
		for _, r := range j.events[:i] {
			if r.User == e.User && r.Lock == lock && r.Phase == history.Ok &&
				(r.Kind == history.Read || r.Kind == history.Write && j.Writes == "transfers") {
				w.onto = r.Value
			}
		}
		ws = append(ws, w)
	}
	return ws
}

// writes counts what is missing at the end. A count applies only if the final value of each lock with acknowledged
// writes was read.
func (j *judge) writes() {
	locks, finals := map[uint16]bool{}, map[uint16]int64{}
	for _, e := range j.events {
		if locks[e.Lock] = true; e.Kind == history.Final {
			finals[e.Lock] = e.Value
		}
	}
	acked, whole, linked := false, true, true
	// of all accounts: what cannot be explained, and what may be explained by writes with unknown outcome
	var off, doubt int64
	for lock := range locks {
		ws := j.writesOf(lock)
		last, read := finals[lock]
		elements, all := chain(ws, last)
		sold, more, unsure := int64(0), last, int64(0)
		for _, w := range ws {
			switch by := w.value - w.onto; w.phase {
			case history.Ok:
				sold, more = sold+1, more-by
				j.add("units_oversold", sold > j.Stock)
				j.add("lost_updates", sold > last)
				j.add("double_bookings", w.value != last)
				j.add("lost_elements", !slices.Contains(elements, w.value))
			case history.Info:
				unsure += max(by, -by)
			}
		}
		acked, whole, linked = acked || sold > 0 && j.Resource != "", whole && (read || sold == 0), linked && all
		if read {
			off, doubt = off+more, doubt+unsure
			j.add("accounts_off", max(more, -more) > unsure)
		}
	}
	j.counts["sum_off"] = max(0, max(off, -off)-doubt)
	j.judged(acked && j.Writes == "sales" && j.Stock > 0, "units_oversold")
	j.judged(acked && whole && j.Increments, "lost_updates")
	j.judged(acked && whole && j.Writes == "seats", "double_bookings")
	j.judged(acked && whole && j.Writes == "elements" && linked, "lost_elements")
	j.judged(acked && whole && j.Writes == "transfers", "accounts_off", "sum_off")
}

// chain returns the last element, the one that it was added to, and so on. all reports whether each was written.
func chain(ws []write, last int64, later ...int64) (elements []int64, all bool) {
	i := slices.IndexFunc(ws, func(w write) bool { return w.value == last })
	if last == 0 || i < 0 || slices.Contains(later, last) {
		return append(later, last), last == 0 || i >= 0
	}
	return chain(ws, ws[i].onto, append(later, last)...)
}
