package lockquake

import (
	"context"
	"errors"
	"sync"
	"time"
)

// hold is a lock that a user holds.
type hold struct {
	user  *user
	lock  int
	op    uint32 // op of its acquire event; 0 if nothing is recorded
	grant Grant

	once sync.Once
	over chan struct{} // closed to stop its renewals

	mu          sync.Mutex
	valid       int64 // the latest end of the validity
	lost, ended bool
	again       []Grant // its re-entries
}

func (h *hold) unfollow() { h.once.Do(func() { close(h.over) }) }

// stands reports whether the grant stays valid for another margin nanoseconds.
func (h *hold) stands(margin int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lost && Now()+margin < h.valid // Endless and Unknown are the extreme values of int64
}

// event returns the first record of an operation within the hold.
func (h *hold) event(kind byte) event {
	return event{user: h.user.id, kind: kind, phase: invoke, lock: uint16(h.lock), grant: h.op, token: h.grant.Token}
}

// follow subscribes to losses and renewals, and renews the grant if the start frame says so.
func (h *hold) follow() {
	if w, ok := h.user.lock.(Watcher); ok {
		w.OnLost(h.grant, h.gone)
	}
	if w, ok := h.user.lock.(RenewalWatcher); ok {
		w.OnRenewed(h.grant, h.renewed)
	}
	if h.user.s.start.Renew {
		go h.keep()
	}
}

func (h *hold) keep() {
	every := h.user.s.start.Access.TTL() / 3
	if every <= 0 {
		return
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-h.over:
			return
		case <-t.C:
		}
		if err := h.renew(every); errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld) {
			return
		}
	}
}

// renewed records that the library renewed the grant by itself.
func (h *hold) renewed(valid int64) { h.learned(kindRenewed, func() { h.valid = valid }) }

// gone records that the grant is lost.
func (h *hold) gone() { h.learned(kindLost, func() { h.lost = true }) }

// learned records what the library reports about the grant, until the hold ends.
func (h *hold) learned(kind byte, change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.lost {
		return
	}
	change()
	e := h.event(kind)
	e.phase, e.valid, e.value = info, h.valid, Now()
	h.user.s.stream.event(e)
}

// do records an operation within the hold and carries it out. What carryOut changes in the event goes into its ok
// record.
func (h *hold) do(e event, timeout time.Duration, carryOut func(context.Context, *event) error) error {
	record, asked := h.user.s.stream.event, e
	if e.kind == kindRelease || e.kind == kindLeave {
		record = h.user.s.stream.flushed
	}
	switch e.kind {
	case kindRelease, kindRenew, kindReenter, kindLeave:
		asked.valid = Now() + int64(timeout)
	}
	seq, _ := record(asked)
	ctx, cancel := context.WithTimeout(h.user.base, timeout)
	defer cancel()
	ok := e
	if err := carryOut(ctx, &ok); err != nil {
		return h.user.failed(e, seq, err)
	}
	if seq != 0 {
		ok.phase, ok.op = done, seq
		h.user.s.stream.event(ok)
	}
	return nil
}

func (h *hold) read(timeout time.Duration) (value int64, err error) {
	if h.user.register == nil {
		return 0, refusal("the run has no resource")
	}
	At(h.user.base, "before-read")
	err = h.do(h.event(kindRead), timeout, func(ctx context.Context, ok *event) error {
		value, err = h.user.register.ask(ctx, h, request{Op: "read"})
		ok.value = value
		return err
	})
	return value, err
}

func (h *hold) write(value int64, timeout time.Duration) error {
	if h.user.register == nil {
		return refusal("the run has no resource")
	}
	h.mu.Lock()
	lost := h.lost
	h.mu.Unlock()
	if look := h.user.s.start.Check; look != "" && lost || look == "validity" && !h.stands(h.user.s.start.Margin) {
		h.user.s.tally(errStopped)
		return errStopped
	}
	At(h.user.base, "before-write")
	e := h.event(kindWrite)
	e.value = value
	return h.do(e, timeout, func(ctx context.Context, _ *event) error { return h.user.register.write(ctx, h, value) })
}

func (h *hold) release(timeout time.Duration) error {
	At(h.user.base, "before-release")
	h.unfollow()
	h.user.call.Lock() // after this no renewal is under way
	defer h.user.call.Unlock()
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	return h.giveBack(kindRelease, h.grant, timeout)
}

func (h *hold) giveBack(kind byte, g Grant, timeout time.Duration) error {
	return h.do(h.event(kind), timeout, func(ctx context.Context, _ *event) error {
		At(ctx, "before-unlock")
		err := h.user.lock.Release(ctx, g)
		if err == nil {
			At(ctx, "unlock-done")
		}
		return err
	})
}

func (h *hold) isReentered() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.again) > 0
}

// reenter takes the lock once more.
func (h *hold) reenter(timeout time.Duration) (id string, err error) {
	r, ok := h.user.lock.(Reenterer)
	if !ok {
		return "", refusal("this lock is not re-entrant")
	}
	h.user.call.Lock()
	defer h.user.call.Unlock()
	err = h.do(h.event(kindReenter), timeout, func(ctx context.Context, e *event) error {
		g, err := h.user.take(ctx, func() (Grant, error) { return r.Reenter(ctx, h.grant) })
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.ended { // its lock was closed meanwhile
			return context.Canceled
		}
		h.again, h.valid = append(h.again, g), g.Valid
		id, e.valid = g.ID, g.Valid
		return nil
	})
	return id, err
}

// leave gives back the latest re-entry.
func (h *hold) leave(timeout time.Duration) error {
	h.user.call.Lock()
	defer h.user.call.Unlock()
	h.mu.Lock()
	n := len(h.again) - 1
	if h.ended || n < 0 {
		h.mu.Unlock()
		return refuse("user %d has closed its lock", h.user.number)
	}
	g := h.again[n]
	h.again = h.again[:n]
	h.mu.Unlock()
	err := h.giveBack(kindLeave, g, timeout)
	if errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld) {
		h.gone()
	}
	return err
}

// giveAway ends the hold of a lock that its user closed.
func (h *hold) giveAway() {
	h.unfollow()
	h.mu.Lock()
	h.ended = true
	left := len(h.again)
	h.mu.Unlock()
	for ; left >= 0; left-- {
		e := h.event(kindLeave)
		if left == 0 {
			e.kind = kindRelease
		}
		if seq, _ := h.user.s.stream.flushed(e); seq != 0 {
			e.phase, e.op, e.code = info, seq, 7
			h.user.s.stream.event(e)
		}
	}
}

func (h *hold) renew(timeout time.Duration) error {
	r, ok := h.user.lock.(Renewer)
	if !ok {
		return refusal("grants of this lock cannot be extended")
	}
	h.user.call.Lock()
	defer h.user.call.Unlock()
	if h.ended { // written while call is held
		return nil
	}
	err := h.do(h.event(kindRenew), timeout, func(ctx context.Context, e *event) (err error) {
		if e.valid, err = r.Renew(ctx, h.grant); err == nil {
			h.mu.Lock()
			h.valid = e.valid
			h.mu.Unlock()
		}
		return err
	})
	if errors.Is(err, ErrLost) || errors.Is(err, ErrNotHeld) {
		h.gone()
	}
	return err
}

func (h *hold) check(timeout time.Duration) error {
	c, ok := h.user.lock.(Checker)
	if !ok {
		return refusal("this lock cannot check a grant")
	}
	h.user.call.Lock()
	defer h.user.call.Unlock()
	return h.do(h.event(kindCheck), timeout, func(ctx context.Context, _ *event) error { return c.Check(ctx, h.grant) })
}
