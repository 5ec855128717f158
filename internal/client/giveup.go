package client

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// deadline is when a call that begins now must end, as its invoke tells it.
func deadline(timeout time.Duration) int64 { return clock.Stamp() + int64(timeout) }

// pendingAcquire is the acquire of one user that is under way, and what gives it up.
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

// giveUp tells the acquire of a user that is under way to end. That is on record before it is told.
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

// close closes the user's lock object. What it has in hand ends here: nobody knows whether the service still keeps it.
func (u *user) close(timeout time.Duration) error {
	u.closed = true
	for l, h := range u.holds {
		delete(u.holds, l)
		h.giveAway(timeout)
	}
	e := u.event(history.Close, 0)
	e.Valid = deadline(timeout)
	asked := u.s.rec.AppendFlushed(&e)
	e.Valid = 0
	u.call.Lock()
	err := u.locker.Close()
	u.call.Unlock()
	if err != nil {
		u.failed(&e, asked, err)
		return err
	}
	e.Phase, e.Op = history.Ok, asked.Seq
	u.finished(&e, asked, false)
	return nil
}

// giveAway ends a hold whose lock object is closed.
func (h *hold) giveAway(timeout time.Duration) {
	h.unfollow()
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	for range h.again.grants {
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
