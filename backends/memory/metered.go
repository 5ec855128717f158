package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// metered is the lock with a price: the positive control of capacity measurements.
const metered = "metered"

// price is the time that lock metered takes for a grant, so that the figures of a sweep are known beforehand. It
// waits and uses no CPU. The zero value is lock exact.
type price struct {
	// Serial is how long the single server takes for each acquire, one after the other, for all locks together: it
	// serves at most 1/Serial cycles a second.
	Serial time.Duration `yaml:"serial" json:"serial_ns,omitempty"`
	// Handoff is the time from a lock's release until its next waiter has it.
	Handoff time.Duration `yaml:"handoff" json:"handoff_ns,omitempty"`
	// Service is the pace of a user who is alone: its acquires end at least that far apart. Each of N users has the
	// pace Service times (1 + Contention*(N-1) + Coherency*N*(N-1)). If each has its own lock and holds it for less
	// than that, this is the Universal Scalability Law.
	Service    time.Duration `yaml:"service" json:"service_ns,omitempty"`
	Contention float64       `yaml:"contention" json:"contention,omitempty"`
	Coherency  float64       `yaml:"coherency" json:"coherency,omitempty"`
}

// check returns an error if the price is invalid for that lock.
func (p price) check(lock string) error {
	for key, d := range map[string]time.Duration{"serial": p.Serial, "handoff": p.Handoff, "service": p.Service} {
		if d != 0 {
			if err := backends.CheckDuration(key, d, 100*time.Microsecond); err != nil {
				return err
			}
		}
	}
	switch {
	case p.Contention < 0 || p.Contention > 1:
		return fmt.Errorf("contention is %g; it must be from 0 to 1", p.Contention)
	case p.Coherency < 0 || p.Coherency > 1:
		return fmt.Errorf("coherency is %g; it must be from 0 to 1", p.Coherency)
	case p.Service == 0 && (p.Contention > 0 || p.Coherency > 0):
		return errors.New("contention and coherency are parts of the service time, but service is 0")
	case p != (price{}) && lock != metered:
		return fmt.Errorf("lock %s has no service times; use lock %s", lock, metered)
	}
	return nil
}

// String returns the price for env.json; "" if there is none.
func (p price) String() string {
	if p == (price{}) {
		return ""
	}
	return fmt.Sprintf("serial %v, handoff %v, service %v, contention %g, coherency %g", p.Serial, p.Handoff, p.Service,
		p.Contention, p.Coherency)
}

// service returns the pace of each of that many users.
func (p price) service(users int) time.Duration {
	n := float64(users)
	return time.Duration(float64(p.Service) * (1 + p.Contention*(n-1) + p.Coherency*n*(n-1)))
}

// server processes acquires one after the other.
type server struct {
	mu  sync.Mutex
	due time.Time // when all accepted work is done
}

// take adds work and returns when it is done.
func (s *server) take(work time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.After(s.due) {
		s.due = now
	}
	s.due = s.due.Add(work)
	return s.due
}

// mostBehind is how far a user may fall behind its own pace and still catch up, in steps of that pace.
const mostBehind = 4

// pay waits until an acquire's price is paid. It keeps the user's pace on average: a delay by a busy machine shortens
// the next wait.
func (l *locker) pay(ctx context.Context) error {
	p := l.store.price
	if p == (price{}) {
		return nil
	}
	until := time.Now()
	if step := p.service(int(l.store.users.Load())); step > 0 {
		if until.Sub(l.due) > mostBehind*step {
			l.due = until.Add(-time.Duration(l.phase * float64(step)))
		}
		l.due = l.due.Add(step)
		until = l.due
	}
	if p.Serial > 0 {
		if done := l.store.server.take(p.Serial); done.After(until) {
			until = done
		}
	}
	wait := time.Until(until)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// handOver serves the queue of a free lock after the handoff time. If the timer fires late, the next handoff is
// shortened by as much. The caller holds the mutex.
func (s *store) handOver(name string) {
	r := s.record(name)
	wait := s.price.Handoff - r.late
	due := time.Now().Add(wait)
	time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.late = min(time.Since(due), s.price.Handoff)
		if len(r.holders) < s.room() { // otherwise all waiters had left, and another user came after them
			s.serve(name)
		}
	})
}
