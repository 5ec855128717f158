package checkers

import (
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// possible counts the conflicting pairs of grants that may have overlapped, from acquire invoke to the release's
// outcome. It subtracts from all pairs those that certainly did not overlap: for these it is enough to know, at each
// acquire, how many grants of the lock were over by then.
//
// With several clocks, a grant that was over within their errors of the invoke may have overlapped too.
type possible struct {
	clocks results.Clocks
	locks  []possibleLock
	users  users.Table[possibleUser]
	ends   []*clockedEnds
}

// possibleLock has its numbers by mode: exclusive, shared.
type possibleLock struct {
	granted [2]int64
	over    [2]int64
	apart   int64 // conflicting pairs in which one was over before the request for the other
}

type possibleUser struct {
	asked     uint32   // Op of the acquire in progress
	over      [2]int64 // the lock's over at that invoke
	held      uint32   // Op of the acquire that was granted; 0 for none
	releasing uint32   // Op of the release in progress; 0 for none
	lock      uint16
	mode      uint8
}

func (p *possible) lock(i uint16) *possibleLock {
	if int(i) >= len(p.locks) {
		p.locks = append(p.locks, make([]possibleLock, int(i)+1-len(p.locks))...)
	}
	return &p.locks[i]
}

func (p *possible) observe(e *history.Event) {
	switch e.Kind {
	case history.Acquire:
		p.acquire(e)
	case history.Release:
		u := p.users.At(e.User)
		if e.Phase == history.Invoke && u.held == e.Grant {
			u.releasing = e.Op
		} else if e.Phase != history.Invoke && u.releasing == e.Op {
			p.end(u, e)
		}
	case history.Lost, history.Dead:
		if u := p.users.At(e.User); u.held == e.Grant || e.Grant == 0 {
			p.end(u, e)
		}
	default:
	}
}

func (p *possible) acquire(e *history.Event) {
	u, l := p.users.At(e.User), p.lock(e.Lock)
	switch e.Phase {
	case history.Invoke:
		u.asked, u.over = e.Op, p.over(e)
	case history.Ok:
		p.end(u, e)
		if u.asked != e.Op {
			u.over = p.over(e)
		}
		u.held, u.lock, u.mode = e.Op, e.Lock, min(e.Mode, 1)
		l.granted[u.mode]++
		l.apart += u.over[0]
		if u.mode == 0 {
			l.apart += u.over[1]
		}
	default:
	}
}

// over returns how many grants of the event's lock were certainly over by then.
func (p *possible) over(e *history.Event) [2]int64 {
	over := p.lock(e.Lock).over
	if len(p.clocks) > 0 {
		doubt := endsOf(&p.ends, e.Lock).after(e.User, p.clocks.Early(e.User, e.Time))
		over[0], over[1] = over[0]-doubt[0], over[1]-doubt[1]
	}
	return over
}

// end records that the user's grant is over, if it has one.
func (p *possible) end(u *possibleUser, e *history.Event) {
	if u.held != 0 {
		p.lock(u.lock).over[u.mode]++
		if len(p.clocks) > 0 {
			endsOf(&p.ends, u.lock).add(p.clocks, clockedEnd{p.clocks.Late(e.User, e.Time), e.User, u.mode}, e.Time)
		}
	}
	u.held, u.releasing = 0, 0
}

// pairs returns the number of conflicting pairs that may have overlapped.
func (p *possible) pairs() int64 {
	var n int64
	for _, l := range p.locks {
		x, s := l.granted[0], l.granted[1]
		n += x*(x-1)/2 + x*s - l.apart
	}
	return n
}

// clockedEnds are the ends of one lock's holds, or grants, that may be later than events read after them.
type clockedEnds struct {
	list  []clockedEnd
	prune int // the length at which the list is pruned

	holders [2]holders // by mode: of the holds that began
}

// holders are the users that have held a lock: none, one, or several.
type holders struct {
	one          history.User
	any, several bool
}

// other reports whether another user than u is among them.
func (h *holders) other(u history.User) bool { return h.several || h.any && h.one != u }

func (h *holders) add(u history.User) {
	h.several = h.other(u)
	if !h.any {
		h.one, h.any = u, true
	}
}

// follows adds a hold that begins, and reports whether a conflicting one of another user had begun before.
func (c *clockedEnds) follows(u history.User, mode uint8) bool {
	follows := c.holders[0].other(u) || mode == 0 && c.holders[1].other(u)
	c.holders[min(mode, 1)].add(u)
	return follows
}

// clockedEnd is the latest possible time of an end.
type clockedEnd struct {
	at   int64
	user history.User
	mode uint8
}

// endsOf returns the ends of a lock.
func endsOf(all *[]*clockedEnds, lock uint16) *clockedEnds {
	for int(lock) >= len(*all) {
		*all = append(*all, &clockedEnds{})
	}
	return (*all)[lock]
}

// fewEnds is how many ends are kept before those are dropped that no later event can precede. maxEnds bounds them if
// clock errors are so large that none is dropped; beyond it the counts are lower bounds.
const (
	fewEnds = 64
	maxEnds = 1 << 12
)

// add adds an end reported at now. Later reports have later times, including their earliest values: a clock's error
// never grows as fast as time.
func (c *clockedEnds) add(clocks results.Clocks, e clockedEnd, now int64) {
	c.list = append(c.list, e)
	if len(c.list) < max(c.prune, fewEnds) {
		return
	}
	first := now
	for _, p := range clocks {
		first = min(first, results.Early(p, now))
	}
	c.list = slices.DeleteFunc(c.list, func(e clockedEnd) bool { return e.at <= first })
	c.list = slices.Delete(c.list, 0, max(0, len(c.list)-maxEnds))
	c.prune = 2 * len(c.list)
}

// after counts, by mode, the ends reported by other clients that may be later than a moment. The users of one client
// share its clock, so its earlier reports are earlier.
func (c *clockedEnds) after(u history.User, moment int64) (n [2]int64) {
	for _, e := range c.list {
		if e.at > moment && e.user.Client() != u.Client() {
			n[e.mode]++
		}
	}
	return n
}

// conflicting returns how many holds of each mode's count conflict with a hold of a mode.
func conflicting(n [2]int64, mode uint8) int64 {
	if mode > 0 {
		return n[0]
	}
	return n[0] + n[1]
}
