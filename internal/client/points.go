package client

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// points are the points at which one user is to stop or die. Any other point costs one atomic read.
type points struct {
	user *user

	count atomic.Int32 // of armed points

	mu      sync.Mutex
	actions map[string]string
	waiting string        // where the user waits
	let     chan struct{} // closed to let it go on; nil when it does not wait
	opened  bool          // points stop the user no more
}

// arm makes the user wait or die, as action says, the next time that it reaches a point.
func (p *points) arm(point, action string) error {
	switch {
	case point == "":
		return refusal("arm names no point")
	case action == wire.ActionDie && p.user.s.o.InProcess:
		return refusal("a client in a shared process cannot die alone")
	case action != wire.ActionWait && action != wire.ActionDie:
		return refusal(fmt.Sprintf("action is %q: want %s or %s", action, wire.ActionWait, wire.ActionDie))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.actions == nil {
		p.actions = map[string]string{}
	}
	p.actions[point] = action
	p.count.Store(int32(len(p.actions)))
	return nil
}

// reached is called at every announced point. It ignores the deadline of the operation: a user that is stopped at a
// point stays there until a command continues it.
func (p *points) reached(_ context.Context, point string) {
	if p.count.Load() == 0 {
		return
	}
	p.mu.Lock()
	action, armed := p.actions[point]
	if !armed || p.opened {
		p.mu.Unlock()
		return
	}
	delete(p.actions, point)
	p.count.Store(int32(len(p.actions)))
	let := make(chan struct{})
	p.waiting, p.let = point, let
	p.mu.Unlock()

	s := p.user.s
	s.rec.Flush()
	err := s.conn.Send(wire.Frame{
		Type:  wire.TypePoint,
		Point: &wire.Point{User: p.user.number, Point: point, Time: clock.Now()},
	})
	if err != nil {
		s.end(fmt.Errorf("point %s: %w", point, err))
		return
	}
	if action == wire.ActionDie {
		s.tally.add(die()) // does not return if it works
	}
	select {
	case <-let:
	case <-s.life.Done():
	}
}

// proceed lets a user continue that waits at point, or at any point if point is "".
func (p *points) proceed(point string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.let == nil || point != "" && point != p.waiting {
		return refusal(fmt.Sprintf("user %d does not wait at point %q", p.user.number, point))
	}
	close(p.let)
	p.let = nil
	return nil
}

// open lets the user continue and makes it wait nowhere any more.
func (p *points) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = true
	if p.let != nil {
		close(p.let)
		p.let = nil
	}
}
