package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/lockquake/lockquake/history"
)

const ms = int64(1e6)

// draft is an event before the events are ordered and numbered: Grant is the number of the user's acquire, from 1.
type draft struct {
	history.Event
	op *operation
}

// operation joins an invoke with its outcome.
type operation struct{ seq uint32 }

// drawnHold is what its user remembers of a grant.
type drawnHold struct {
	number      uint32
	lock        uint16
	mode        uint8
	start       int64
	valid       int64
	token       uint64
	open        bool
	known, over bool // granted; released or lost
	read        bool // what the lock protects was read
	entries     int  // re-entries that were not released
}

func (h *drawnHold) entitled(now int64) bool {
	return h.open && h.valid != history.ValidUnknown && h.valid > now
}

// drawnUser is one user: what it does now, and what it may do next.
type drawnUser struct {
	user    history.User
	doing   history.Kind // the operation under way, or none
	op      *operation
	asked   int64
	hold    *drawnHold   // the latest one requested
	earlier []*drawnHold // granted ones
	dead    bool
}

// drawing draws one history, action by action.
type drawing struct {
	t      *rapid.T
	run    Run
	now    int64
	drafts []draft
	users  []*drawnUser
	locks  int
	shared bool
	polite bool // a lock that grants only what no other user is entitled to
	token  uint64
	value  int64
	last   int64
}

func (d *drawing) n(label string, n int) int { return rapid.IntRange(0, n-1).Draw(d.t, label) }

// chance returns true once in n draws; rapid makes it rarer when it shrinks.
func (d *drawing) chance(label string, n int) bool { return d.n(label, n) == n-1 }

// drawHistory draws a run and its events, ordered and numbered. Clients' clocks may err.
func drawHistory(t *rapid.T) (Run, []history.Event) { return drawClocked(t, true) }

// drawClocked draws a run and its events. If clocks are right, no effect comes before its grant.
func drawClocked(t *rapid.T, err bool) (Run, []history.Event) {
	d := &drawing{t: t, now: 100 * ms, run: Run{Resource: "register", Errors: map[int]int64{}, Dead: map[int]bool{}}}
	d.run.Token = []string{"service", "none", "home-made"}[d.n("tokens", 3)]
	d.locks, d.shared, d.polite = 1+d.n("locks", 2), d.n("shared", 2) == 1, d.n("polite", 2) == 0
	clients, least := 2+d.n("clients", 2), 1
	if d.chance("several permits", 3) {
		d.run.Permits, d.shared = 2+d.n("permits", 2), false
	}
	if d.chance("equal times", 4) {
		least = 0
	}
	for u := range max(clients, 2+d.n("users", 3)+d.run.Permits) {
		d.users = append(d.users, &drawnUser{user: history.MakeUser(u%clients, u/clients)})
	}
	if err && d.chance("clocks err", 3) {
		for c := range clients {
			d.run.Errors[c] = int64(d.n("error", 4)) * ms
		}
	}
	d.drawWrites()
	for range 12 + d.n("steps", 48) {
		d.now += ms * int64(least+d.n("gap", 6))
		d.step(d.users[d.n("user", len(d.users))])
	}
	if d.run.Writes != "" || d.run.Increments {
		for l := range d.locks {
			d.now += ms
			d.add(d.users[0], history.Event{Kind: history.Final, Phase: history.Info, Lock: uint16(l), Value: d.finalValue(uint16(l))}, nil)
		}
	}
	return d.run, number(d.drafts)
}

// drawWrites draws the meaning of writes.
func (d *drawing) drawWrites() {
	switch d.n("writes", 6) {
	case 1:
		d.run.Increments = true
	case 2:
		d.run.Writes, d.run.Stock = "sales", 1
	case 3, 4, 5:
		d.run.Writes = []string{"seats", "transfers", "elements"}[d.n("meaning", 3)]
	}
}

func (d *drawing) finalValue(lock uint16) int64 {
	if d.run.Increments {
		return int64(d.n("final", 3))
	}
	return d.someValue(lock)
}

// someValue returns a value written under the lock, or 0; seldom one of another lock.
func (d *drawing) someValue(lock uint16) int64 {
	others := d.chance("of another lock", 12)
	var vs []int64
	for _, x := range d.drafts {
		if x.Kind == history.Write && x.Phase == history.Invoke && (others || x.Lock == lock) {
			vs = append(vs, x.Value)
		}
	}
	slices.Reverse(vs)
	return append(vs, 0)[d.n("value", len(vs)+1)]
}

func (d *drawing) add(a *drawnUser, e history.Event, op *operation) {
	e.User = a.user
	if e.Time == 0 {
		e.Time = d.now
	}
	d.drafts = append(d.drafts, draft{e, op})
}

// of returns an event about the hold h.
func of(h *drawnHold, k history.Kind, p history.Phase) history.Event {
	return history.Event{Kind: k, Phase: p, Grant: h.number, Lock: h.lock, Mode: h.mode, Token: h.token}
}

// step lets the user take one action.
func (d *drawing) step(a *drawnUser) {
	switch {
	case a.dead:
	case d.chance("late effect", 8) && len(a.earlier) > 0:
		d.effect(a, a.earlier[len(a.earlier)-1-d.n("which", min(2, len(a.earlier)))])
	case a.doing == history.Acquire:
		d.granted(a)
	case a.doing != history.KindNone:
		d.outcome(a)
	case a.hold == nil || !a.hold.known || a.hold.over && !d.chance("once more", 8):
		d.ask(a)
	default:
		d.within(a)
	}
}

func (d *drawing) begin(a *drawnUser, e history.Event) {
	a.doing, a.op, a.asked = e.Kind, &operation{}, d.now
	e.Phase = history.Invoke
	d.add(a, e, a.op)
}

func (d *drawing) end(a *drawnUser, e history.Event) {
	d.add(a, e, a.op)
	a.doing = history.KindNone
}

func (d *drawing) ask(a *drawnUser) {
	h := &drawnHold{lock: uint16(d.n("lock", d.locks)), number: 1}
	if d.shared {
		h.mode = uint8(d.n("mode", 2))
	}
	if a.hold != nil {
		h.number = a.hold.number + 1
	}
	a.hold = h
	d.begin(a, of(h, history.Acquire, history.Invoke))
}

// contested reports whether as many other users are entitled to the lock of h as it has permits.
func (d *drawing) contested(a *drawnUser, h *drawnHold) bool {
	n := 0
	for _, o := range d.users {
		if o != a && o.hold != nil && o.hold.known && o.hold.lock == h.lock && (o.hold.mode == 0 || h.mode == 0) && o.hold.entitled(d.now) {
			n++
		}
	}
	return n >= max(1, d.run.Permits)
}

func (d *drawing) granted(a *drawnUser) {
	h := a.hold
	if d.polite && d.contested(a, h) && !d.chance("rude", 12) {
		return // it waits
	}
	e := of(h, history.Acquire, history.Ok)
	switch d.n("answer", 12) {
	case 10:
		e.Phase, e.Code = history.Info, history.CodeTimeout
	case 11:
		e.Phase, e.Code = history.Fail, history.CodeTimeout
	}
	if e.Phase == history.Ok {
		h.known, h.open, h.start, h.valid = true, true, d.now, d.validity()
		if d.run.Token != "none" {
			d.drawToken()
			h.token = d.token
		}
		e.Value = []int64{a.asked, a.asked + (d.now-a.asked)/2/ms*ms}[d.n("issued", 2)]
		e.Token, e.Valid = h.token, h.valid
		a.earlier = append(a.earlier, h)
	}
	d.end(a, e)
}

func (d *drawing) drawToken() {
	switch d.n("token", 10) {
	default:
		d.last++
		d.token = uint64(d.last)
	case 6:
	case 7:
		d.token = uint64(max(1, d.last-1))
	case 8:
		d.token = uint64(1 + d.n("low", int(d.last)+1))
	case 9:
		d.token = 0
	}
}

// validity draws the validity of a hold, as reported now.
func (d *drawing) validity() int64 {
	switch d.n("validity", 10) {
	default:
		return d.now + ms*int64(50+10*d.n("long", 16))
	case 3, 4, 5, 6:
		return d.now + ms*int64(1+d.n("short", 25))
	case 7:
		return history.ValidEndless
	case 8:
		return d.now - ms*int64(d.n("over", 12))
	case 9:
		return history.ValidUnknown
	}
}

func (d *drawing) effect(a *drawnUser, h *drawnHold) {
	e := of(h, history.EffectWrite, history.Ok)
	if d.n("read", 2) == 1 {
		e.Kind = history.EffectRead
	}
	switch d.n("effect", 8) {
	case 6, 7:
		if e.Kind == history.EffectWrite {
			e.Phase, e.Code = []history.Phase{history.Ok, history.Fail}[d.n("condition", 2)], history.CodeConditional
		}
	case 4:
		e.Phase, e.Code = history.Fail, history.CodeFenced
	case 5:
		e.Phase, e.Code = history.Fail, history.CodeOther
	}
	if errs := d.run.Errors[a.user.Client()]; errs > 0 && d.chance("before its grant", 4) {
		e.Time = max(ms, h.start-ms*int64(d.n("early", int(errs/ms)+2))) // by its clock; if it is earlier by more than the error, the effect is not the hold's
	}
	d.add(a, e, nil)
}

// within lets a user act that has a hold, or had one until it learned of its loss.
func (d *drawing) within(a *drawnUser) {
	h := a.hold
	if (d.run.Writes != "" || d.run.Increments) && d.n("access", 4) > 0 {
		d.access(a)
		return
	}
	switch d.n("act", 22) {
	case 0, 1, 2, 3:
		if h.entries > 0 {
			h.entries--
			d.begin(a, of(h, history.Leave, history.Invoke))
			return
		}
		d.begin(a, of(h, history.Release, history.Invoke))
		h.open, h.over = false, true
	case 4, 5, 6, 7, 8:
		d.effect(a, h)
	case 9, 10:
		d.begin(a, of(h, history.Renew, history.Invoke))
	case 11, 12:
		e := of(h, history.Renewed, history.Info)
		e.Valid = d.validity()
		d.learned(h, e.Valid)
		d.add(a, e, nil)
	case 13:
		d.add(a, of(h, history.Lost, history.Info), nil)
		h.open, h.over = false, true
	case 14:
		e := of(h, history.Ended, history.Info)
		e.Time = h.start + ms*int64(d.n("back", int((d.now-h.start)/ms)+1))
		e.Valid = e.Time
		d.learned(h, e.Valid)
		d.add(a, e, nil)
	case 15:
		d.die(a)
	case 20, 21:
		d.begin(a, of(h, history.Reenter, history.Invoke))
	default:
		d.access(a)
	}
}

func (d *drawing) learned(h *drawnHold, valid int64) {
	if h.open {
		h.valid = valid
	}
}

// access begins an operation on the resource.
func (d *drawing) access(a *drawnUser) {
	e := of(a.hold, history.Read, history.Invoke)
	if blind := d.run.Writes != "transfers" && d.run.Writes != "elements"; a.hold.read || blind && d.n("write", 2) == 1 {
		e.Kind = history.Write
		a.hold.read = false
		d.value++
		e.Value = d.value
		if d.run.Writes == "transfers" {
			e.Value = int64(d.n("amount", 9)) - 4
		}
	}
	d.value = max(d.value, e.Value)
	d.begin(a, e)
}

// outcome ends the operation under way.
func (d *drawing) outcome(a *drawnUser) {
	e := of(a.hold, a.doing, history.Ok)
	n := d.n("outcome", 8)
	switch {
	case n == 5:
		e.Phase, e.Code = history.Info, history.CodeTimeout
	case n >= 6 && (a.doing == history.Release || a.doing == history.Renew):
		e.Phase, e.Code = history.Fail, history.CodeNotHeld
	case n == 7:
		e.Phase, e.Code = history.Fail, history.CodeTimeout
	}
	switch {
	case (a.doing == history.Renew || a.doing == history.Reenter) && e.Phase == history.Ok:
		e.Valid = d.validity()
		d.learned(a.hold, e.Valid)
		if a.doing == history.Reenter {
			a.hold.entries++
		}
	case a.doing == history.Read && e.Phase == history.Ok:
		e.Value, a.hold.read = d.someValue(a.hold.lock), true
	case a.doing == history.Write:
		e.Value = d.value
		for _, x := range d.drafts {
			if x.op == a.op {
				e.Value = x.Value
			}
		}
	}
	d.end(a, e)
}

// die ends the user's client, with or without an event.
func (d *drawing) die(a *drawnUser) {
	silent := d.n("silent", 2) == 1
	told := silent || d.n("told too", 2) == 1
	d.run.Dead[a.user.Client()] = told
	for _, o := range d.users {
		if o.user.Client() != a.user.Client() {
			continue
		}
		o.dead = true
		if o.hold == nil || !o.hold.known || silent {
			continue
		}
		e := of(o.hold, history.Dead, history.Info)
		if told && d.n("all grants", 2) == 1 {
			e.Grant = 0
		}
		if e.Value = d.now + ms*int64(2-d.n("alive", 12)); d.chance("never seen", 5) {
			e.Value = 0
		}
		o.hold.open = false
		d.add(o, e, nil)
	}
}

// process returns the name of the process whose history contains e.
func process(e *history.Event) string {
	switch e.Kind {
	case history.EffectRead, history.EffectWrite, history.Final:
		return "register"
	case history.Dead, history.Ended:
		return history.Engine
	}
	return fmt.Sprintf("client-%d", e.User.Client()+1)
}

// number puts the events in the order of a merged history, and sets the numbers that link them.
func number(drafts []draft) []history.Event {
	slices.SortStableFunc(drafts, func(a, b draft) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(process(&a.Event), process(&b.Event)))
	})
	type acquire struct {
		user   history.User
		number uint32
	}
	seqs, ops := map[string]uint32{}, map[acquire]uint32{}
	for i := range drafts {
		x := &drafts[i]
		seqs[process(&x.Event)]++
		x.Seq = seqs[process(&x.Event)]
		x.Op = x.Seq
		if x.op != nil && x.Phase == history.Invoke {
			x.op.seq = x.Seq
		}
		if x.Kind == history.Acquire && x.Phase == history.Invoke {
			ops[acquire{x.User, x.Grant}] = x.Op
		}
	}
	var out []history.Event
	for _, x := range drafts {
		if x.op != nil {
			x.Op = x.op.seq
		}
		x.Grant = ops[acquire{x.User, x.Grant}]
		out = append(out, x.Event)
	}
	return out
}
