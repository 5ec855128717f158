package client

import (
	"context"
	"errors"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// renewalsPerTTL is how often a grant is renewed within the time that the service keeps it.
const renewalsPerTTL = 3

// watch follows the grant until the hold ends: the changes that the lock reports, and its own renewals.
func (h *hold) watch() {
	if h.u.watcher == nil && h.u.renewer == nil {
		return
	}
	ctx, cancel := context.WithCancel(h.u.base)
	h.stop = cancel
	if h.u.watcher != nil {
		changes := h.u.watcher.Watch(ctx, h.current())
		h.around.Go(func() {
			for c := range changes {
				h.changed(c)
			}
		})
	}
	if h.u.renewer != nil {
		h.around.Go(func() { h.keep(ctx) })
	}
}

// changed records a change of the grant, unless the hold has ended or was lost already.
func (h *hold) changed(c lock.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.lost {
		return
	}
	e := h.u.event(history.Renewed, h.lock)
	e.Phase, e.Grant, e.Token, e.Mode = history.Info, h.op, uint64(h.token), uint8(h.mode)
	if c.Lost {
		e.Kind, e.Valid = history.Lost, h.u.s.moment(h.valid)
		h.lost = true
	} else {
		h.valid = c.ValidUntil
		e.Valid = h.u.s.moment(c.ValidUntil)
	}
	if !c.At.IsZero() {
		e.Value = clock.Of(c.At)
	}
	h.u.s.rec.Append(&e)
}

// keep renews the grant a few times per TTL until ctx ends or the grant is lost.
func (h *hold) keep(ctx context.Context) {
	every := h.u.s.access.TTL / renewalsPerTTL
	if every <= 0 {
		return
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := h.renew(ctx, h.u.renewer, min(every, h.u.s.timeout))
		if errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrNotHeld) {
			h.changed(lock.Change{At: time.Now(), Lost: true})
			return
		}
	}
}

// renew asks the service for more time.
func (h *hold) renew(ctx context.Context, r lock.Renewer, timeout time.Duration) error {
	h.u.call.Lock()
	defer h.u.call.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	e := h.event(history.Renew)
	e.Valid = deadline(timeout)
	asked := h.u.s.rec.Append(&e)
	e.Valid = 0
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	g, err := r.Renew(ctx, h.current(), h.u.s.access.TTL)
	if err != nil {
		h.u.failed(&e, asked, err)
		return err
	}
	h.mu.Lock()
	h.grant, h.valid = g, g.ValidUntil
	h.mu.Unlock()
	e.Phase, e.Op, e.Valid = history.Ok, asked.Seq, h.u.s.moment(g.ValidUntil)
	h.u.finished(&e, asked, false)
	return nil
}

// renewNow carries out the renew command: one renewal, whether or not the scenario wants them.
func (h *hold) renewNow(timeout time.Duration) error {
	r, ok := h.u.locker.(lock.Renewer)
	if !ok {
		return refusal("grants of lock " + h.u.s.access.Lock + " cannot be extended by a call")
	}
	err := h.renew(h.u.calls, r, timeout)
	if errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrNotHeld) {
		h.changed(lock.Change{At: time.Now(), Lost: true})
	}
	return err
}
