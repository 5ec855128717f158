package checkers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/evidence"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// askWatcher is notified before the number of users that ask for a lock changes.
type askWatcher interface {
	// touch updates the state of the lock to time t.
	touch(lock uint16, t int64)
}

// asks tracks which users ask for which lock: from an acquire's invoke to its outcome, or to the death of its
// process.
type asks struct {
	watch   askWatcher
	users   users.Table[ask]
	asking  []int  // by lock
	alone   []int  // by lock: users of them that ask in exclusive mode
	cold    []int  // by lock: users of them whose client has had no outcome of an acquire yet
	warm    []bool // by client: it has had one
	dead    []bool // by client: it no longer asks
	muted   []int  // by client: number of faults on it; a muted client does not count as asking
	moments []moment
}

type ask struct {
	op   uint32
	open bool
	mode uint8
	lock uint16
}

// moment is a change of a client's state through a fault.
type moment struct {
	time   int64
	client int
	muted  int // change of the number of faults on it
	dead   bool
}

// clientFault is a fault on a client.
type clientFault struct {
	time  int64
	kills bool
}

// newAsks returns an asks. With mute set, the users of a client do not count while a fault or a step holds it.
func newAsks(run results.Run, w askWatcher, mute bool) *asks {
	n := len(run.Locks)
	a := &asks{watch: w, asking: make([]int, n), alone: make([]int, n), cold: make([]int, n)}
	dead := users.DeadClients(run)
	deadliest := map[int]clientFault{} // dead client -> the fault that killed it
	for i := range run.Faults {
		f := &run.Faults[i]
		for _, name := range f.Targets {
			c, ok := history.ClientOf(name)
			if !ok {
				continue
			}
			if b := (clientFault{f.Start, f.Traits.Kills}); b.kills || !deadliest[c].kills {
				deadliest[c] = b // the faults are ordered by their start
			}
			if mute {
				a.moments = append(a.moments, moment{time: f.Start, client: c, muted: 1})
				if f.End != 0 {
					a.moments = append(a.moments, moment{time: f.End, client: c, muted: -1})
				}
			}
		}
	}
	for _, h := range run.Held() {
		if c, ok := history.ClientOf(h.Process); ok && mute {
			a.moments = append(a.moments, moment{time: h.From, client: c, muted: 1},
				moment{time: h.To, client: c, muted: -1})
		}
	}
	// The engine reports the time of death for holders only. Any other killed client counts as dead from the last
	// killing fault on it, else from the last fault of any kind, else from the beginning: a user that may have been
	// dead must not be called stuck.
	for _, c := range dead {
		a.moments = append(a.moments, moment{time: deadliest[c].time, client: c, dead: true})
	}
	slices.SortStableFunc(a.moments, func(x, y moment) int { return cmp.Compare(x.time, y.time) })
	return a
}

// observe takes the next event.
func (a *asks) observe(e *history.Event) {
	for len(a.moments) > 0 && a.moments[0].time <= e.Time {
		a.pass(a.moments[0])
		a.moments = a.moments[1:]
	}
	switch {
	case e.Kind == history.Dead:
		a.pass(moment{time: e.Time, client: e.User.Client(), dead: true})
	case e.Kind != history.Acquire:
	case e.User.Client() < len(a.dead) && a.dead[e.User.Client()]:
	case e.Phase == history.Invoke:
		u := a.users.At(e.User)
		a.close(u, e.User.Client(), e.Time)
		*u = ask{op: e.Op, open: true, mode: e.Mode, lock: e.Lock}
		a.change(u, e.User.Client(), 1, e.Time)
	default:
		if u := a.users.At(e.User); u.op == e.Op {
			a.close(u, e.User.Client(), e.Time)
			a.warmUp(e.User.Client(), e.Time)
		}
	}
}

// warmUp records that a client has had the outcome of an acquire.
func (a *asks) warmUp(client int, t int64) {
	if a.isWarm(client) {
		return
	}
	a.eachOpen(client, -1, t)
	for client >= len(a.warm) {
		a.warm = append(a.warm, false)
	}
	a.warm[client] = true
	a.eachOpen(client, 1, t)
}

func (a *asks) isWarm(client int) bool { return client < len(a.warm) && a.warm[client] }

// eachOpen changes the counts by n for each asking user of a client, unless it is muted.
func (a *asks) eachOpen(client, n int, t int64) {
	for _, u := range a.users.Client(client) {
		if u.open {
			a.change(u, client, n, t)
		}
	}
}

// counts returns whether users ask for a lock, and whether one of them has a warm client.
func (a *asks) counts(lock uint16) (asked, warm bool) {
	if int(lock) >= len(a.asking) {
		return false, false
	}
	return a.asking[lock] > 0, a.asking[lock] > a.cold[lock]
}

func (a *asks) close(u *ask, client int, t int64) {
	if u.open {
		a.change(u, client, -1, t)
		u.open = false
	}
}

// change adds n to the number of asking users, unless the client is muted.
func (a *asks) change(u *ask, client, n int, t int64) {
	if client < len(a.muted) && a.muted[client] > 0 {
		return
	}
	a.add(u, client, n, t)
}

func (a *asks) add(u *ask, client, n int, t int64) {
	for int(u.lock) >= len(a.asking) {
		a.asking, a.alone, a.cold = append(a.asking, 0), append(a.alone, 0), append(a.cold, 0)
	}
	a.watch.touch(u.lock, t)
	a.asking[u.lock] += n
	if !a.isWarm(client) {
		a.cold[u.lock] += n
	}
	if u.mode == 0 {
		a.alone[u.lock] += n
	}
}

// against returns how many users ask for a lock in a mode that conflicts with the given one.
func (a *asks) against(lock uint16, mode uint8) int {
	switch {
	case int(lock) >= len(a.asking):
		return 0
	case mode == 0:
		return a.asking[lock]
	}
	return a.alone[lock]
}

func (a *asks) pass(m moment) {
	for m.client >= len(a.muted) {
		a.muted = append(a.muted, 0)
	}
	if m.dead {
		for m.client >= len(a.dead) {
			a.dead = append(a.dead, false)
		}
		if a.dead[m.client] {
			return
		}
		a.dead[m.client] = true
		for _, u := range a.users.Client(m.client) {
			a.close(u, m.client, m.time)
		}
		return
	}
	was, n := a.muted[m.client], 0
	switch {
	case was == 0: // the first fault begins
		n = -1
	case was+m.muted == 0: // the last one ends
		n = 1
	}
	for _, u := range a.users.Client(m.client) {
		if n != 0 && u.open {
			a.add(u, m.client, n, m.time)
		}
	}
	a.muted[m.client] += m.muted
}

// vainAsk is a user that keeps asking for a lock.
type vainAsk struct {
	open  history.Event // the acquire in progress; KindNone: none
	since int64         // invoke of the first of the successive failed acquires
}

// vain records how long users asked in vain for a lock that was free for them: for each user and lock the longest
// time beyond a limit.
type vain struct {
	run   results.Run
	kind  string        // of the witnesses
	limit int64         // ns
	most  int64         // ns: a longer standstill of a process explains the wait, whatever its length
	why   func() string // why they should have been granted it
	found map[results.Place]vainSpan
}

// vainSpan is such a time, and the acquire that ended it.
type vainSpan struct {
	span
	events []history.Event
}

// add adds a time. end is the outcome of the acquire, or nil.
func (v *vain) add(p results.Place, s span, invoke history.Event, end *history.Event) {
	was, waited := v.found[p], s.until-s.from
	if waited <= v.limit || waited <= was.until-was.from {
		return
	}
	if v.found == nil {
		v.found = map[results.Place]vainSpan{}
	}
	events := []history.Event{invoke}
	if end != nil {
		events = append(events, *end)
	}
	v.found[p] = vainSpan{s, events}
}

// judged returns the finding that counts them.
func (v *vain) judged(count string, chances int64) results.Finding {
	list, stays := evidence.Shortlist{}, []evidence.Stay(nil)
	for _, p := range slices.SortedFunc(maps.Keys(v.found), func(a, b results.Place) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Lock, b.Lock))
	}) {
		s := v.found[p]
		waited := s.until - s.from
		stays = append(stays, evidence.Stay{
			User: p.User, Lock: p.Lock, Start: s.from, End: s.until, Late: min(waited-v.limit, v.most),
		})
		list.Add(evidence.Proof{
			Kind: v.kind, From: s.from, To: s.until, Rank: int(waited / 1e6), Events: s.events, Text: func() string {
				return fmt.Sprintf("%v waited for %s without a grant for %.3f ms, from %s to %s: %s", p.User, v.run.LockName(p.Lock),
					results.Milli(waited), v.run.MS(s.from), v.run.MS(s.until), v.why())
			},
		})
	}
	f := results.Finding{}.Judged(count, int64(len(v.found)), chances)
	evidence.ExcuseWaits(v.run, stays, evidence.Anyone).Into(&f, count)
	f.Witnesses = list.Witnesses(v.run)
	return f
}
