package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// deadline returns when a call that begins now must end; its invoke carries it.
func deadline(timeout time.Duration) int64 { return clock.Stamp() + int64(timeout) }

// pendingAcquire is the acquire of one user that is under way, and the means to cancel it.
type pendingAcquire struct {
	mu   sync.Mutex
	op   uint32             // 0: its invoke found no room
	stop context.CancelFunc // nil: none is under way
}

func (p *pendingAcquire) set(op uint32, stop context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.op, p.stop = op, stop
}

// giveUp cancels the acquire that a user has under way. That is recorded before the cancellation.
func (u *user) giveUp() error {
	p := &u.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop == nil {
		return refusal("no acquire is under way")
	}
	if p.op != 0 {
		u.s.rec.AppendFlushed(&history.Event{Kind: history.Cancel, Phase: history.Info, User: u.name, Op: p.op})
	}
	p.stop()
	return nil
}

// holds are the holds, by lock, that a user got by orders. They last until it closes its lock object.
type holds struct {
	mu   sync.Mutex
	by   map[int]*hold
	over bool // its lock object is closed
}

func (h *holds) get(lockNumber int) (x *hold, closed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.by[lockNumber], h.over
}

// keep adds a hold; it returns false if the lock object was closed meanwhile.
func (h *holds) keep(x *hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by == nil {
		h.by = map[int]*hold{}
	}
	if !h.over {
		h.by[x.lock] = x
	}
	return !h.over
}

func (h *holds) drop(lockNumber int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, lockNumber)
}

// all removes all holds and returns them.
func (h *holds) all() []*hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Collect(maps.Values(h.by))
	clear(h.by)
	return out
}

// close marks the lock object as closed, and reports whether it was open until then.
func (h *holds) close() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.over
	h.over = true
	return !was
}

func (h *holds) closed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

func hasClosed(user int) error {
	return refusal(fmt.Sprintf("user %d has closed its lock", user))
}

// close closes the user's lock object, even while a call is under way. All its holds end here: whether the service
// still keeps them is unknown.
func (u *user) close(timeout time.Duration) error {
	if !u.held.close() {
		return hasClosed(u.number)
	}
	held := u.held.all()
	for _, h := range held {
		h.giveAway(timeout)
	}
	e := u.event(history.Close, 0)
	e.Valid = deadline(timeout)
	asked := u.s.rec.AppendFlushed(&e)
	e.Valid = 0
	_, busy := u.locker.(lock.BusyCloser)
	if !busy {
		u.over()
	}
	for _, h := range held {
		h.unfollow()
	}
	if !busy {
		u.call.Lock()
		defer u.call.Unlock()
	}
	if err := u.locker.Close(); err != nil {
		u.failed(&e, asked, err)
		return err
	}
	e.Phase, e.Op = history.Ok, asked.Seq
	u.finished(&e, asked, false)
	return nil
}

// neverGranted is the id of a grant that no service gave.
const neverGranted = "never granted"

// unheld is a lock that a user does not hold.
type unheld struct {
	u    *user
	lock int
}

// release releases the grant that the user released last, or one that it never had. h is the user's hold if it has
// one after all, else nil.
func (x unheld) release(h *hold, timeout time.Duration) error {
	u, name := x.u, x.u.s.start.Locks[x.lock]
	if h != nil {
		return refusal(fmt.Sprintf("user %d has %s in hand: release it first", u.number, name))
	}
	g, ok := u.given[x.lock]
	if !ok {
		g = lock.Grant{Lock: name, ID: neverGranted, Issued: time.Now()}
	}
	u.call.Lock()
	defer u.call.Unlock()
	e := u.event(history.ReleaseUnheld, x.lock)
	e.Valid = deadline(timeout)
	asked := u.s.rec.AppendFlushed(&e)
	e.Valid = 0
	ctx := u.holding.Within(u.base, timeout)
	defer ctx.End()
	if err := u.locker.Release(ctx, g); err != nil {
		u.failed(&e, asked, err)
		return err
	}
	e.Phase, e.Op = history.Ok, asked.Seq
	u.finished(&e, asked, false)
	return nil
}

// giveAway ends a hold whose lock object is closed.
func (h *hold) giveAway(timeout time.Duration) {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	for _, ok := h.again.drop(); ok; _, ok = h.again.drop() {
		e, asked := h.again.left(timeout)
		e.Phase, e.Op, e.Code = history.Info, asked.Seq, history.CodeCancelled
		h.u.finished(&e, asked, false)
	}
	e := h.event(history.Release)
	e.Valid = deadline(timeout)
	asked := h.u.s.rec.AppendFlushed(&e)
	e.Valid, e.Phase, e.Op, e.Code = 0, history.Info, asked.Seq, history.CodeCancelled
	h.u.finished(&e, asked, false)
}
