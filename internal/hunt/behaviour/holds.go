package behaviour

import (
	"math"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
)

// hold is a grant that a user holds, or has just released.
type hold struct {
	user    history.User
	grant   uint32
	shared  bool
	valid   int64 // the latest end of its validity
	expired bool  // its end was reported
}

// lockState is the state of one lock at the current event.
type lockState struct {
	open   []hold       // in the order of their grants
	last   history.User // the user granted it last, and when
	lastAt int64
	order  []move // the latest moves, at most as many as form one behaviour
}

// move is a step in the life of a lock: a user and its action.
type move struct {
	user history.User
	what string
}

// together is how many consecutive moves form one behaviour.
const together = 3

func (w *watcher) lock(i uint16) *lockState {
	l := w.locks[i]
	if l == nil {
		l = &lockState{}
		w.locks[i] = l
	}
	return l
}

// holders describes the lock's holders from a user's point of view.
func (l *lockState) holders(u history.User) string {
	own, other := "", ""
	for _, h := range l.open {
		word := "valid"
		if h.expired {
			word = "outlived"
		}
		if h.user == u {
			own = "own " + word
		} else if other == "" || word == "valid" {
			other = "other " + word
		}
	}
	switch {
	case own == "" && other == "":
		return "free"
	case own == "":
		return other
	case other == "":
		return own
	}
	return own + " and " + other
}

// valid reports whether a user has the lock with time left.
func (l *lockState) valid() bool {
	return slices.ContainsFunc(l.open, func(h hold) bool { return !h.expired })
}

// held describes the lock's holders from the point of view of a fault's targets.
func (l *lockState) held(targets []int) string {
	var words []string
	for _, h := range l.open {
		word := "another holds"
		if slices.Contains(targets, h.user.Client()) {
			word = "its target holds"
		}
		if h.expired {
			word += " too long"
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "nobody holds"
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// push adds a move, and records the latest consecutive ones. Users are named in the order of their appearance.
func (w *watcher) push(l *lockState, u history.User, what string) {
	l.order = append(l.order, move{u, what})
	if len(l.order) > together {
		l.order = l.order[1:]
	}
	if len(l.order) < together {
		return
	}
	var users []history.User
	var words []string
	for _, m := range l.order {
		i := slices.Index(users, m.user)
		if i < 0 {
			i = len(users)
			users = append(users, m.user)
		}
		words = append(words, string(rune('a'+i))+" "+m.what)
	}
	w.shows.add("order %s", strings.Join(words, ", "))
}

// expire ends the validity of holds, in the order of their ends.
func (w *watcher) expire(t int64) {
	for _, l := range w.locks {
		for {
			next := -1
			for i := range l.open {
				h := &l.open[i]
				ends := !h.expired && h.valid < t && h.valid != history.ValidUnknown
				if ends && (next < 0 || h.valid < l.open[next].valid) {
					next = i
				}
			}
			if next < 0 {
				break
			}
			l.open[next].expired = true
			w.push(l, l.open[next].user, "outlives")
			w.shows.closer("overlapping_holds", 0.5)
			w.shows.closer("stale_writes", 0.3)
		}
	}
}

// grant opens a hold, and records how far it is from an overlap with another one.
func (w *watcher) grant(e *history.Event) {
	l := w.lock(e.Lock)
	switch left := e.Valid - e.Time; {
	case e.Valid == history.ValidEndless, e.Valid == history.ValidUnknown:
		w.shows.add("granted without an end")
	case left < 0:
		w.shows.add("granted %s after its end", w.shows.since(-left))
	default:
		w.shows.add("granted with %s left", w.shows.since(left))
	}
	for _, h := range l.open {
		if h.user != e.User && !(h.shared && e.Mode != 0) {
			w.beside(e, h)
		}
	}
	l.open = append(l.open, hold{user: e.User, grant: e.Op, shared: e.Mode != 0, valid: e.Valid})
	l.last, l.lastAt = e.User, e.Time
	w.push(l, e.User, "granted")
}

// beside records a grant beside an open hold. The time from the end of that hold's validity to the grant is a
// behaviour of its own. It says little about how near a double grant is: a right lock is granted anew just then.
func (w *watcher) beside(e *history.Event, h hold) {
	w.shows.closer("overlapping_holds", 1)
	w.shows.closer("stale_writes", 0.6)
	switch {
	case h.valid == history.ValidUnknown:
		w.shows.add("grant beside an open hold of unknown validity")
	case h.valid == history.ValidEndless:
		w.shows.add("grant beside an endless hold")
		w.shows.closer("double_grants", 1)
	case e.Time < h.valid:
		w.shows.add("grant beside an open hold, %s before its end", w.shows.since(h.valid-e.Time))
		w.shows.closer("double_grants", 1)
	default:
		gap := e.Time - h.valid
		w.shows.add("grant beside an open hold, %s after its end", w.shows.since(gap))
		w.shows.closer("double_grants", 0.2*math.Exp(-2*float64(gap)/float64(w.shows.ttl)))
	}
}

// denied records an acquire without a grant.
func (w *watcher) denied(e *history.Event, invoked begun) {
	if invoked.Time > 0 {
		w.shows.add("%s after %s, %s", wordOf(e), w.shows.since(e.Time-invoked.Time), w.lock(e.Lock).holders(e.User))
	}
	if e.Phase == history.Info { // the service may have granted it
		w.shows.closer("orphans", 0.5)
	}
}

// extend sets a new end of validity.
func (w *watcher) extend(e *history.Event) {
	l := w.lock(e.Lock)
	for i := range l.open {
		if h := &l.open[i]; h.user == e.User && (e.Grant == 0 || h.grant == e.Grant) {
			if h.expired && e.Valid > e.Time {
				w.push(l, e.User, "revived")
				h.expired = false
			}
			h.valid = e.Valid
		}
	}
}

// release ends a hold when its release begins: from then on its user does not rely on the lock. It returns the end of
// its validity.
func (w *watcher) release(e *history.Event) int64 {
	l := w.lock(e.Lock)
	end := history.ValidUnknown
	for _, h := range l.open {
		if h.user == e.User && h.grant == e.Grant {
			end = h.valid
		}
	}
	w.push(l, e.User, "releases")
	l.open = slices.DeleteFunc(l.open, func(h hold) bool { return h.user == e.User && h.grant == e.Grant })
	if i := slices.IndexFunc(l.open, func(h hold) bool { return !h.expired }); i >= 0 {
		w.shows.add("release begins beside another's valid hold")
		w.shows.closer("foreign_releases", 0.5)
	}
	return end
}

// gone ends the holds of a user that learned of a loss, or died.
func (w *watcher) gone(e *history.Event) {
	for _, l := range w.locks {
		for i := 0; i < len(l.open); {
			if h := l.open[i]; h.user != e.User || e.Grant != 0 && h.grant != e.Grant {
				i++
				continue
			}
			l.open = slices.Delete(l.open, i, i+1)
			w.push(l, e.User, e.Kind.String())
		}
	}
}

// crossing records whether the end of validity, or another user's grant, fell into a release, a renewal or a write.
//
// Example: a release begins 5 ms before the validity ends, its request is delayed, another user is granted the lock,
// and the release is answered ok. A lock that deletes whatever is there has now deleted the other user's grant.
func (w *watcher) crossing(e *history.Event, invoked begun) {
	l := w.lock(e.Lock)
	other := "nobody else was granted it"
	switch {
	case l.last == e.User || l.lastAt == 0:
	case invoked.Time > 0 && l.lastAt > invoked.Time:
		other = "another was granted it meanwhile"
	default:
		other = "another was granted it before"
	}
	end := invoked.end
	if e.Kind != history.Release {
		end = history.ValidUnknown
		if i := slices.IndexFunc(l.open, func(h hold) bool { return h.user == e.User && h.grant == e.Grant }); i >= 0 {
			end = l.open[i].valid
		}
		if e.Kind == history.Renew && e.Phase == history.Ok {
			w.extend(e)
		}
	}
	own := inTime
	switch {
	case end == history.ValidUnknown:
	case invoked.Time > end:
		own = begunLate
	case e.Time > end:
		own = doneLate
	}
	w.shows.add("%s: %s%s", wordOf(e), own, other)
	if invoked.Time > 0 {
		w.shows.add("%s took %s, %s", wordOf(e), w.shows.since(e.Time-invoked.Time), other)
	}
	if other == "nobody else was granted it" {
		return
	}
	switch {
	case e.Kind == history.Release:
		w.shows.releases(e, own)
	case e.Kind == history.Write && e.Phase == history.Ok:
		w.shows.closer("stale_writes", 0.9)
	case e.Kind == history.Renew && e.Phase == history.Ok:
		w.shows.closer("false_results", 0.7)
	}
	if e.Kind == history.Release {
		w.push(l, e.User, wordOf(e))
	}
}

// lateness says whether an operation was begun or answered after the end of its user's validity.
type lateness string

const (
	inTime    lateness = ""
	begunLate lateness = "begun after its end, "
	doneLate  lateness = "done after its end, "
)

// releases records how near a release that met another's grant came to free it. That another is granted the lock before
// the answer is usual, unless the validity ended meanwhile, or the answer did not come.
func (s *shows) releases(e *history.Event, own lateness) {
	near := 0.0
	switch {
	case e.Phase == history.Fail && own == doneLate: // as late, and told so
		near = 0.5
	case e.Phase == history.Fail:
	case own == doneLate:
		near = 0.9
	case own != inTime:
		near = 0.7
	case e.Phase == history.Info:
		near = 0.6
	}
	if near > 0 {
		s.closer("foreign_releases", near)
		s.closer("double_grants", near-0.2)
	}
}
