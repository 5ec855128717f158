package oracle

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockquake/lockquake/history"
)

// The kinds of correct lock services that are simulated.
const (
	leased   = iota // each grant has a TTL; a user who finds the lock taken polls (Redis)
	sessions        // a queue; grants hang on a session that is kept alive (etcd, ZooKeeper)
	endless         // a queue; the service ends sessions, and the engine asks which are alive (Postgres)
)

// world is a correct lock service with its users, on a clock of its own. Requests, replies and effects come late or
// never. Users stop for longer than their validity, and die. The clocks of their clients err.
type world struct {
	*drawing

	kind      int
	ttl       int64
	okForGone bool // a release of a grant that is gone is answered ok
	alike     bool // holders who share a lock have the same token
	fence     bool // the resource rejects tokens lower than the highest it saw
	wrong     []int64
	register  int64 // the error of the resource's clock
	locks     [2]place
	granted   int
	agenda    []task
	made      int
	users     []*simUser
	stale     int64 // effects that the service knows to be stale
	saves     int64 // rejected ones of stale grants, and of users no longer entitled
	refusals  int64 // other rejected ones, of grants that are valid for the service
}

type task struct {
	at, n int64
	do    func()
}

// place is one lock and what it protects.
type place struct {
	queue   []*simGrant
	held    []*simGrant
	touched []*simGrant
	highest uint64
}

// simGrant is what the service knows about a request, and the user about its grant.
type simGrant struct {
	*drawnHold

	user    *simUser
	session *simSession // of a lock with sessions; a lease has its own
	order   int         // the service's order of the grants
	issued  int64
	waiting bool
	reply   func()
	began   bool // the user holds it
}

// simSession lasts until it expires.
type simSession struct {
	expires int64
	known   int64 // the user knows that it lasts at least until then
	gone    bool
	lost    bool // and the user knows it
}

type simUser struct {
	*drawnUser

	w       *world
	session *simSession
	steps   int
}

func newWorld(t *rapid.T) *world {
	w := &world{drawing: &drawing{t: t, now: 1000 * ms, run: Run{Resource: "register", Token: "service", Errors: map[int]int64{}, Dead: map[int]bool{}}}}
	w.kind, w.shared = w.n("kind", 3), w.n("shared", 2) == 1
	if w.chance("several permits", 3) { // a resource needs a lock that excludes
		w.run.Permits, w.run.Resource, w.shared = 2+w.n("permits", 2), "", false
	}
	w.ttl = ms * int64(8+w.n("ttl", 40))
	w.okForGone, w.alike, w.fence = w.n("ok for gone", 2) == 1, w.n("alike", 2) == 1, w.n("fence", 2) == 1
	clients := 2 + w.n("clients", 2)
	err := w.n("clocks", 3)
	for c := range clients {
		w.run.Errors[c] = int64(err) * ms
		w.wrong = append(w.wrong, ms*int64(w.n("off", 2*err+1)-err))
	}
	w.register = ms * int64(w.n("off", 2*err+1)-err)
	for u := range clients + w.n("users", 3) + w.run.Permits {
		a := &simUser{drawnUser: &drawnUser{user: history.MakeUser(u%clients, u/clients)}, w: w, steps: 4 + w.n("steps", 12)}
		w.users = append(w.users, a)
		w.in(w.delay(), a.ask)
	}
	return w
}

// delay returns how long something takes: mostly little, sometimes longer than a validity.
func (w *world) delay() int64 {
	if w.chance("slow", 8) {
		return ms * int64(w.n("long", 80))
	}
	return ms * int64(w.n("short", 8))
}

func (w *world) in(d int64, do func()) {
	w.made++
	w.agenda = append(w.agenda, task{w.now + d, int64(w.made), do})
}

// play carries out the agenda in order.
func (w *world) play() {
	for len(w.agenda) > 0 && w.made < 400 {
		i := 0
		for k := range w.agenda {
			if cmp.Or(cmp.Compare(w.agenda[k].at, w.agenda[i].at), cmp.Compare(w.agenda[k].n, w.agenda[i].n)) < 0 {
				i = k
			}
		}
		next := w.agenda[i]
		w.agenda = slices.Delete(w.agenda, i, i+1)
		w.now = max(w.now, next.at)
		next.do()
	}
}

// stands reports whether the service still has the grant.
func (w *world) stands(g *simGrant) bool { return slices.Contains(w.locks[g.lock].held, g) }

// serve lets the service notice what has expired, and grant its locks to the waiters.
func (w *world) serve() {
	for l := range w.locks {
		p := &w.locks[l]
		over := func(g *simGrant) bool {
			if w.kind != endless && g.session.expires <= w.now {
				g.session.gone = true
			}
			return g.session.gone
		}
		p.held, p.queue = slices.DeleteFunc(p.held, over), slices.DeleteFunc(p.queue, over)
		for len(p.queue) > 0 && !w.taken(p, p.queue[0]) {
			g := p.queue[0]
			p.queue = p.queue[1:]
			w.grant(p, g)
		}
	}
}

// taken reports whether a lock cannot be granted now.
func (w *world) taken(p *place, g *simGrant) bool {
	if w.run.Permits > 1 {
		return len(p.held) >= w.run.Permits
	}
	return slices.ContainsFunc(p.held, func(h *simGrant) bool { return h.mode == 0 || g.mode == 0 })
}

func (w *world) grant(p *place, g *simGrant) {
	w.granted++
	g.order, g.token = w.granted, uint64(w.granted)
	if w.alike && len(p.held) > 0 {
		g.token = p.held[0].token
	}
	p.held = append(p.held, g)
	w.in(w.delay(), g.reply)
}

// note records what a user does, with the time of its client's clock.
func (a *simUser) note(e history.Event) {
	e.Time = a.w.now + a.w.wrong[a.user.Client()]
	a.w.add(a.drawnUser, e, a.op)
}

// local converts time t to the client's clock.
func (a *simUser) local(t int64) int64 {
	if t == history.ValidEndless {
		return t
	}
	return t + a.w.wrong[a.user.Client()]
}

// then does something on the client after a while, if it is alive.
func (a *simUser) then(d int64, do func()) {
	a.w.in(d, func() {
		if !a.dead {
			do()
		}
	})
}

func (a *simUser) ask() {
	if a.dead || a.steps == 0 {
		return
	}
	a.steps--
	w := a.w
	g := &simGrant{drawnHold: &drawnHold{lock: uint16(w.n("lock", 2)), number: 1}, user: a, issued: w.now, waiting: true}
	if w.shared {
		g.mode = uint8(w.n("mode", 2))
	}
	if a.hold != nil {
		g.number = a.hold.number + 1
	}
	a.hold, a.op = g.drawnHold, &operation{}
	a.note(of(g.drawnHold, history.Acquire, history.Invoke))
	if w.kind == leased {
		a.try(g)
	} else {
		a.enqueue(g)
	}
	if w.chance("impatient", 4) {
		a.then(w.ttl+w.delay(), func() { a.giveUp(g) })
	}
}

// try sends one request to a service that answers at once.
func (a *simUser) try(g *simGrant) {
	w := a.w
	if !g.waiting || a.dead {
		return
	}
	g.issued = w.now
	sent := w.now
	w.in(w.delay(), func() {
		w.serve()
		p := &w.locks[g.lock]
		if w.taken(p, g) {
			a.then(w.delay()+ms, func() { a.try(g) })
			return
		}
		g.session = &simSession{expires: w.now + w.ttl, known: sent + w.ttl}
		w.in(w.ttl, w.serve)
		g.reply = func() { a.begin(g) }
		w.grant(p, g)
	})
}

// enqueue sends a request to a service with a queue.
func (a *simUser) enqueue(g *simGrant) {
	w := a.w
	if a.session == nil || a.session.lost {
		a.session = &simSession{known: w.now + w.ttl, expires: history.ValidEndless}
		if w.kind == endless {
			a.session.known = history.ValidEndless
		}
	}
	s := a.session
	g.session, g.reply = s, func() { a.begin(g) }
	w.in(w.delay(), func() {
		if w.kind == sessions && s.expires == history.ValidEndless {
			s.expires = w.now + w.ttl
			w.in(w.ttl, w.serve)
			a.then(w.delay(), func() { a.keepAlive(s) })
		}
		if w.kind == endless && w.chance("ends", 5) {
			w.in(w.delay(), func() { w.end(s) })
		}
		w.serve()
		if !s.gone {
			w.locks[g.lock].queue = append(w.locks[g.lock].queue, g)
		}
		w.serve()
	})
}

// keepAlive asks for more time for a session, again and again.
func (a *simUser) keepAlive(s *simSession) {
	w, sent := a.w, a.w.now
	w.in(w.delay(), func() {
		w.serve()
		if s.expires <= w.now {
			s.gone = true
		}
		alive := !s.gone
		if alive {
			s.expires = w.now + w.ttl
			w.in(w.ttl, w.serve)
		}
		a.then(w.delay(), func() { a.heard(s, alive, sent) })
	})
}

// heard handles the answer to a keep-alive.
func (a *simUser) heard(s *simSession, alive bool, sent int64) {
	if s.lost || s != a.session {
		return
	}
	if alive {
		if s.known = max(s.known, sent+a.w.ttl); a.hold.open {
			a.op = nil
			e := of(a.hold, history.Renewed, history.Info)
			e.Valid = a.local(s.known)
			a.note(e)
		}
		if a.steps > 0 || a.hold.open {
			a.then(a.w.delay()+2*ms, func() { a.keepAlive(s) })
		}
		return
	}
	a.loses(s)
}

// loses tells the user that its session is gone.
func (a *simUser) loses(s *simSession) {
	s.lost = true
	if a.hold.open {
		a.hold.open = false
		a.op = nil
		a.note(of(a.hold, history.Lost, history.Info))
	}
}

// end ends a session of a service without expiry; the engine dates the end back.
func (w *world) end(s *simSession) {
	if s.gone {
		return
	}
	s.gone = true
	stood := w.now - ms*int64(w.n("not asked for", 6))
	w.serve()
	for _, a := range w.users {
		if a.session == s {
			h := a.hold
			w.in(0, func() { w.ended(a, h, stood) })
			a.then(w.delay(), func() { a.loses(s) })
		}
	}
}

func (w *world) ended(a *simUser, h *drawnHold, stood int64) {
	if !h.known {
		if !a.dead {
			h.valid = stood // its grant may still be under way
		}
		return
	}
	e := of(h, history.Ended, history.Info)
	e.Time = max(stood, h.start)
	e.Valid = e.Time
	w.add(a.drawnUser, e, nil)
}

// begin gives a grant to its user.
func (a *simUser) begin(g *simGrant) {
	if a.dead || !g.waiting {
		return
	}
	w := a.w
	g.waiting, g.began, g.open, g.known, g.start = false, true, true, true, a.local(w.now)
	e := of(g.drawnHold, history.Acquire, history.Ok)
	e.Value, e.Valid = a.local(g.issued), a.local(g.session.known)
	a.note(e)
	if w.kind == endless && g.session.gone {
		w.ended(a, g.drawnHold, g.valid)
	}
	if g.session.lost {
		a.loses(g.session)
	}
	a.then(w.delay(), func() { a.act(g) })
}

// giveUp ends a request that was not answered.
func (a *simUser) giveUp(g *simGrant) {
	if !g.waiting {
		return
	}
	g.waiting = false
	a.note(of(g.drawnHold, history.Acquire, history.Info))
	a.w.in(a.w.delay(), func() { a.w.drop(g) })
	a.then(a.w.delay(), a.ask)
}

// drop removes a grant or a request, and reports whether it was held.
func (w *world) drop(g *simGrant) (held bool) {
	w.serve()
	held = w.stands(g)
	is := func(h *simGrant) bool { return h == g }
	p := &w.locks[g.lock]
	p.held, p.queue = slices.DeleteFunc(p.held, is), slices.DeleteFunc(p.queue, is)
	w.serve()
	return held
}

// act is what a user does that holds the lock, believes so, or has just learned of its loss.
func (a *simUser) act(g *simGrant) {
	w := a.w
	switch n := w.n("act", 9); {
	case n < 4:
		for range 1 + w.n("effects", 2) {
			read := w.n("read", 2) == 1
			w.in(w.delay(), func() { w.effect(g, read) })
		}
	case n == 4 && w.kind == leased && g.open:
		a.renew(g)
		return
	case n == 5 && w.chance("dies", 3):
		a.die()
		return
	case n >= 6:
		a.release(g)
		return
	}
	a.then(w.delay(), func() { a.act(g) })
}

func (a *simUser) renew(g *simGrant) {
	w, sent := a.w, a.w.now
	a.op = &operation{}
	a.note(of(g.drawnHold, history.Renew, history.Invoke))
	w.in(w.delay(), func() {
		w.serve()
		e := of(g.drawnHold, history.Renew, history.Fail)
		e.Code = history.CodeNotHeld
		if w.stands(g) {
			g.session.expires = w.now + w.ttl
			w.in(w.ttl, w.serve)
			e.Phase, e.Code, e.Valid = history.Ok, 0, a.local(sent+w.ttl)
		}
		if w.chance("no answer", 6) {
			e.Phase, e.Code, e.Valid = history.Info, history.CodeTimeout, 0
		}
		a.then(w.delay(), func() {
			a.note(e)
			a.then(w.delay(), func() { a.act(g) })
		})
	})
}

func (a *simUser) release(g *simGrant) {
	w := a.w
	a.op = &operation{}
	g.open = false
	a.note(of(g.drawnHold, history.Release, history.Invoke))
	e := of(g.drawnHold, history.Release, history.Ok)
	if w.chance("no answer", 6) {
		e.Phase, e.Code = history.Info, history.CodeTimeout
		if w.n("sent", 2) == 1 {
			a.then(w.delay(), func() { a.note(e); a.ask() })
			return
		}
	}
	w.in(w.delay(), func() {
		if !w.drop(g) && !w.okForGone && e.Phase == history.Ok {
			e.Phase, e.Code = history.Fail, history.CodeNotHeld
		}
		a.then(w.delay(), func() {
			a.note(e)
			a.then(w.delay(), a.ask)
		})
	})
}

// die ends a client; the engine sees it later.
func (a *simUser) die() {
	w := a.w
	silent, alive, seen := w.n("silent", 2) == 1, w.now-ms*int64(w.n("alive", 4)), w.delay()
	w.run.Dead[a.user.Client()] = true
	for _, o := range w.users {
		if o.user.Client() != a.user.Client() {
			continue
		}
		o.dead = true
		if w.kind == endless && o.session != nil {
			s := o.session
			w.in(w.delay(), func() { w.end(s) })
		}
		if h := o.hold; h != nil && h.known && !silent {
			w.in(seen, func() {
				e := of(h, history.Dead, history.Info)
				e.Value = alive
				w.add(o.drawnUser, e, nil)
			})
		}
	}
}

// effect is an access that arrives at the resource.
func (w *world) effect(g *simGrant, read bool) {
	p := &w.locks[g.lock]
	late := slices.ContainsFunc(p.touched, func(k *simGrant) bool { return k.order > g.order && (k.mode == 0 || g.mode == 0) })
	e := of(g.drawnHold, history.EffectWrite, history.Ok)
	if read {
		e.Kind = history.EffectRead
	}
	e.Time = w.now + w.register
	switch {
	case w.fence && g.token < p.highest:
		e.Phase, e.Code = history.Fail, history.CodeFenced
		stands, off := w.stands(g), w.register != 0 // with off, a judge may be wrong about what was over by then
		if late || !stands || !g.open || g.user.dead || g.session.known <= w.now || off {
			w.saves++
		}
		if !late && (stands || off) {
			w.refusals++
		}
	case late && !read:
		w.stale++
	}
	if e.Phase == history.Ok {
		p.touched, p.highest = append(p.touched, g), max(p.highest, g.token)
	}
	w.add(g.user.drawnUser, e, nil)
}

// A correct lock is never accused, whatever is late, lost, dead or has a wrong clock: neither judge claims more than
// the service knows.
func TestCorrectLocksAreNotAccused(t *testing.T) {
	checks(t, "4000")
	seen := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		w.play()
		events := number(w.drafts)
		if err := nonsense(w.run, events); err != nil {
			rt.Fatalf("%v\n%s", err, script(w.run, events, nil))
		}
		most := map[string]int64{"stale_writes": w.stale, "fence_saves": w.saves, "false_refusals": w.refusals}
		want, got := Judge(w.run, events), judged(w.run, events)
		for _, name := range []string{"double_grants", "token_regressions", "foreign_releases", "stale_writes", "fence_saves", "false_refusals"} {
			if want[name] > most[name] || got[name] > most[name] {
				rt.Fatalf("%s: the service knows of %d, the oracle says %d, results %d; kind %d\n%s", name, most[name], want[name], got[name], w.kind, script(w.run, events, want))
			}
		}
		for _, name := range names {
			if want[name] > 0 {
				seen[name]++
			}
			if want[name] != got[name] && !masked(w.run, name) {
				rt.Fatalf("%s: the oracle says %d, results %d\n%s", name, want[name], got[name], script(w.run, events, want))
			}
		}
	})
	t.Log(seen)
}
