package client

import (
	"errors"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// reentries are the times that a user took a lock it already held and has not released yet. The hold lasts until all
// of them and the grant itself are released.
type reentries struct {
	of     *hold
	grants []lock.Grant
}

// take takes the lock once more.
func (r *reentries) take(timeout time.Duration) result {
	h := r.of
	e := h.event(history.Reenter)
	e.Valid = deadline(timeout)
	h.u.call.Lock()
	defer h.u.call.Unlock()
	asked := h.u.s.rec.Append(&e)
	e.Valid = 0
	ctx := h.u.asking.Within(h.u.at(h.u.s.load), timeout)
	defer ctx.End()
	g, err := h.u.locker.Acquire(ctx, lock.Request{
		Lock: h.u.s.start.Locks[h.lock], Mode: h.mode, TTL: h.u.s.access.TTL,
	})
	if err != nil {
		h.u.failed(&e, asked, err)
		return result{err: err}
	}
	h.mu.Lock()
	over := h.ended
	if !over {
		r.grants, h.valid = append(r.grants, g), g.ValidUntil
	}
	h.mu.Unlock()
	e.Phase, e.Op, e.Valid = history.Ok, asked.Seq, h.u.s.moment(g.ValidUntil)
	if over { // its lock object was closed meanwhile
		e.Phase, e.Valid, e.Code = history.Info, 0, history.CodeCancelled
	}
	h.u.finished(&e, asked, true)
	return result{value: int64(h.token), grant: g.ID}
}

// leave releases the latest re-entry. If the service certainly refuses, the user learns that it has lost the lock.
func (r *reentries) leave(timeout time.Duration) error {
	h := r.of
	h.u.call.Lock()
	g, ok := r.drop()
	if !ok { // its lock object was closed meanwhile
		h.u.call.Unlock()
		return hasClosed(h.u.number)
	}
	e, asked := r.left(timeout)
	ctx := h.u.holding.Within(h.u.calls, timeout)
	defer ctx.End()
	err := h.u.locker.Release(ctx, g)
	h.u.call.Unlock()
	if err != nil {
		h.u.failed(&e, asked, err)
		if errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrNotHeld) {
			h.changed(lock.Change{At: time.Now(), Lost: true})
		}
		return err
	}
	e.Phase, e.Op = history.Ok, asked.Seq
	h.u.finished(&e, asked, false)
	return nil
}

// any reports whether a re-entry has not been given back.
func (r *reentries) any() bool {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	return len(r.grants) > 0
}

// drop removes the latest re-entry and returns it; ok is false if there is none.
func (r *reentries) drop() (g lock.Grant, ok bool) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if n := len(r.grants); n > 0 {
		g, ok, r.grants = r.grants[n-1], true, r.grants[:n-1]
	}
	return g, ok
}

// left records that the latest re-entry is released.
func (r *reentries) left(timeout time.Duration) (history.Event, wire.Stamp) {
	e := r.of.event(history.Leave)
	e.Valid = deadline(timeout)
	asked := r.of.u.s.rec.AppendFlushed(&e)
	e.Valid = 0
	return e, asked
}

// giveBack releases the latest re-entry, or the grant if there is none. over reports whether the hold has ended.
func (r *reentries) giveBack(timeout time.Duration) (over bool, err error) {
	if r.any() {
		return false, r.leave(timeout)
	}
	err = r.of.release(timeout)
	r.of.unfollow()
	return true, err
}
