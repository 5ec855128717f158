package client

import (
	"context"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// hold is a lock that a user holds: a workloads.Hold. A stop does not cut off its operations; only their timeout and
// the end of the client do.
type hold struct {
	u        *user
	lock     int
	op       uint32 // of its acquire; 0 if nothing is recorded
	token    lock.Token
	mode     lock.Mode
	intended time.Time
	stop     context.CancelFunc // of watch and renewal; nil when there are none
	around   sync.WaitGroup     // watch and renewal
	again    reentries

	mu    sync.Mutex
	grant lock.Grant
	valid lock.Validity // the latest
	lost  bool
	ended bool // the release has begun
}

var errNoResource = refusal("the run has no resource")

// Read reads the value that the lock protects.
func (h *hold) Read(context.Context) (int64, error) { return h.read(h.u.s.timeout) }

// Write writes it, unless the user has to check first and sees that its grant is gone.
func (h *hold) Write(_ context.Context, value int64) error { return h.write(value, h.u.s.timeout) }

// Release releases the lock.
func (h *hold) Release(context.Context) error {
	defer h.u.setFree(h.intended)
	return h.release(h.u.s.timeout)
}

func (h *hold) read(timeout time.Duration) (int64, error) {
	if h.u.res == nil {
		return 0, errNoResource
	}
	lock.At(h.u.base, workloads.PointRead)
	e := h.event(history.Read)
	asked := h.u.s.rec.Append(&e)
	ctx := h.u.holding.Within(h.u.base, timeout)
	defer ctx.End()
	value, err := h.u.res.Read(ctx, h.touch())
	if err != nil {
		h.u.failed(&e, asked, err)
		return 0, err
	}
	e.Phase, e.Op, e.Value = history.Ok, asked.Seq, value
	h.u.finished(&e, asked, false)
	return value, nil
}

func (h *hold) write(value int64, timeout time.Duration) error {
	if h.u.res == nil {
		return errNoResource
	}
	if err := h.look(); err != nil {
		h.u.s.tally.add(err)
		return err
	}
	lock.At(h.u.base, workloads.PointWrite)
	e := h.event(history.Write)
	e.Value = value
	asked := h.u.s.rec.Append(&e)
	ctx := h.u.holding.Within(h.u.base, timeout)
	defer ctx.End()
	if err := h.u.res.Write(ctx, h.touch(), value); err != nil {
		h.u.failed(&e, asked, err)
		return err
	}
	e.Phase, e.Op = history.Ok, asked.Seq
	h.u.finished(&e, asked, false)
	return nil
}

// look does the check that the scenario demands before a write.
func (h *hold) look() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.u.s.start.Check {
	case checkSignal:
		if h.lost {
			return workloads.ErrStopped
		}
	case checkValidity:
		if h.lost || !h.valid.Covers(time.Now().Add(time.Duration(h.u.s.start.Margin))) {
			return workloads.ErrStopped
		}
	}
	return nil
}

// release ends the hold. Its invoke is recorded before anything is sent.
func (h *hold) release(timeout time.Duration) error {
	lock.At(h.u.base, workloads.PointRelease)
	if h.stop != nil {
		h.stop()
	}
	h.u.call.Lock() // a renewal under way has ended
	e := h.event(history.Release)
	h.mu.Lock()
	h.ended = true
	g := h.grant
	h.mu.Unlock()
	e.Valid = deadline(timeout)
	asked := h.u.s.rec.AppendFlushed(&e)
	e.Valid = 0
	ctx := h.u.holding.Within(h.u.calls, timeout)
	defer ctx.End()
	err := h.u.locker.Release(ctx, g)
	h.u.call.Unlock()
	h.around.Wait()
	if err != nil {
		h.u.failed(&e, asked, err)
		return err
	}
	e.Phase, e.Op = history.Ok, asked.Seq
	h.u.finished(&e, asked, false)
	return nil
}

// check asks the service whether the grant is still valid.
func (h *hold) check(timeout time.Duration) error {
	c, ok := h.u.locker.(lock.Checker)
	if !ok {
		return refusal("lock " + h.u.s.access.Lock + " cannot check whether a grant is still valid")
	}
	h.u.call.Lock()
	defer h.u.call.Unlock()
	e := h.event(history.Check)
	asked := h.u.s.rec.Append(&e)
	ctx := h.u.holding.Within(h.u.base, timeout)
	defer ctx.End()
	if err := c.Check(ctx, h.current()); err != nil {
		h.u.failed(&e, asked, err)
		return err
	}
	e.Phase, e.Op = history.Ok, asked.Seq
	h.u.finished(&e, asked, false)
	return nil
}

func (h *hold) current() lock.Grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.grant
}

// event begins the record of an operation within the hold.
func (h *hold) event(k history.Kind) history.Event {
	e := h.u.event(k, h.lock)
	e.Grant, e.Token, e.Mode = h.op, uint64(h.token), uint8(h.mode)
	return e
}

func (h *hold) touch() resource.Access {
	return resource.Access{
		Lock: h.u.s.start.Locks[h.lock], User: h.u.name, Grant: h.op, Token: h.token, Mode: h.mode,
		Owner: h.current().ID,
	}
}
