package results

import (
	"github.com/lockquake/lockquake/history"
)

// possible counts the conflicting pairs of grants that may have overlapped: from acquire invoke to the release's
// outcome. It counts those that certainly did not, for which it is enough to know at each acquire how many grants of the
// lock were over by then, and subtracts them from all.
type possible struct {
	locks []possibleLock
	users byUser[possibleUser]
}

// possibleLock has its numbers by mode: exclusive, shared.
type possibleLock struct {
	granted [2]int64
	over    [2]int64
	apart   int64 // conflicting pairs of which one was over before the other was asked for
}

type possibleUser struct {
	asked     uint32   // Op of the acquire that is under way
	over      [2]int64 // of its lock, when it was invoked
	held      uint32   // Op of the acquire that was granted; 0 for none
	releasing uint32   // Op of the release that is under way; 0 for none
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
		u := p.users.at(e.User)
		if e.Phase == history.Invoke && u.held == e.Grant {
			u.releasing = e.Op
		} else if e.Phase != history.Invoke && u.releasing == e.Op {
			p.end(u)
		}
	case history.Lost, history.Dead:
		if u := p.users.at(e.User); u.held == e.Grant || e.Grant == 0 {
			p.end(u)
		}
	default:
	}
}

func (p *possible) acquire(e *history.Event) {
	u, l := p.users.at(e.User), p.lock(e.Lock)
	switch e.Phase {
	case history.Invoke:
		u.asked, u.over = e.Op, l.over
	case history.Ok:
		p.end(u)
		if u.asked != e.Op {
			u.over = l.over
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

// end notes that the user's grant is over, if it has one.
func (p *possible) end(u *possibleUser) {
	if u.held != 0 {
		p.lock(u.lock).over[u.mode]++
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
