package memory

import (
	"context"
	"hash/crc32"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// flaws says in what ways a store is wrong. The zero value is right.
type flaws struct {
	neverExcludes   bool
	expiresEarly    bool
	forgetsRenewals bool
	reusesTokens    bool
	fallingTokens   bool
	wrapsTokens     bool
	lateFence       bool
	freesForeign    bool
	neverExpires    bool
	lastFirst       bool
	neverRefuses    bool
	keepsReleased   bool
	deniesRenewals  bool
	grantsToNobody  bool
	storms          bool
	deaf            bool
	neverTells      bool
	tellsLate       bool
	wedges          bool
	mixesNames      bool
	leavesRecords   bool
	cutsTTL         bool
	losesWakeups    bool
	hashesNames     bool
	retakes         bool
}

// silent tells whether the store says nothing when a grant ends: one that told its victims would hide what it did to
// them, because a hold ends when its user learns of the loss.
func (f flaws) silent() bool {
	return f.neverRefuses || f.neverExcludes || f.expiresEarly || f.forgetsRenewals || f.cutsTTL || f.freesForeign ||
		f.neverExpires || f.retakes
}

// store is the service: what a server would keep.
type store struct {
	flaws  flaws
	price  price
	server server       // of what the price says that one server does
	users  atomic.Int64 // that are connected
	// requests is how often the store was asked for anything.
	requests atomic.Int64

	mu     sync.Mutex
	locks  map[string]*record
	grants uint64 // ids and tokens are drawn from it
	left   int64  // records of grants that are over
}

// record is one lock.
type record struct {
	holder  *holding // nil: free
	waiters []*waiter
	drawn   uint64        // tokens drawn so far
	late    time.Duration // by how much the handoff before took too long
	timer   *time.Timer   // fires at the holder's end
}

// holding is a grant as the store sees it.
type holding struct {
	id    uint64
	token uint64
	begin time.Time
	end   time.Time
	lost  chan struct{} // closed when the grant runs out; never by a silent store
}

// waiter is a user in the queue.
type waiter struct {
	ttl   time.Duration
	given chan *holding // capacity 1
}

func (s *store) record(name string) *record {
	if s.flaws.mixesNames {
		name, _, _ = strings.Cut(name, "/")
	}
	if s.flaws.hashesNames {
		name = strconv.FormatUint(uint64(crc32.ChecksumIEEE([]byte(name))), 16)
	}
	r, ok := s.locks[name]
	if !ok {
		r = &record{}
		s.locks[name] = r
	}
	return r
}

// try grants at once or returns nil.
func (s *store) try(name string, ttl time.Duration) *holding {
	s.requests.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(name, ttl)
}

// acquire waits in the queue until the lock is granted or ctx ends.
func (s *store) acquire(ctx context.Context, name string, ttl time.Duration) (*holding, error) {
	for s.flaws.storms {
		if h := s.try(name, ttl); h != nil {
			return h, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		runtime.Gosched()
	}
	s.requests.Add(1)
	s.mu.Lock()
	if h := s.take(name, ttl); h != nil {
		s.mu.Unlock()
		return h, nil
	}
	w := &waiter{ttl: ttl, given: make(chan *holding, 1)}
	r := s.record(name)
	r.waiters = append(r.waiters, w)
	s.mu.Unlock()

	done := ctx.Done()
	if s.flaws.deaf {
		done = nil
	}
	select {
	case h := <-w.given:
		return h, nil
	case <-done:
	}
	if s.flaws.grantsToNobody {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.waiters = slices.DeleteFunc(r.waiters, func(o *waiter) bool { return o == w })
	select {
	case h := <-w.given: // granted at the last moment, to nobody: give it back
		s.free(name, h.id)
	default:
	}
	return nil, ctx.Err()
}

// take grants the lock if it is free and nobody waits for it. The caller holds the mutex.
func (s *store) take(name string, ttl time.Duration) *holding {
	r := s.record(name)
	s.expire(name)
	if s.flaws.neverExcludes {
		return s.grant(name, ttl)
	}
	if r.holder != nil || len(r.waiters) > 0 {
		return nil
	}
	return s.grant(name, ttl)
}

// grant makes a new holding. The caller holds the mutex.
func (s *store) grant(name string, ttl time.Duration) *holding {
	r := s.record(name)
	s.grants++
	now := time.Now()
	h := &holding{id: s.grants, begin: now, end: now.Add(s.flaws.life(ttl)), lost: make(chan struct{})}
	if !s.flaws.lateFence {
		h.token = s.flaws.draw(r)
	}
	r.holder = h
	s.arm(name)
	return h
}

// life is how long a store keeps what it promised for ttl.
func (f flaws) life(ttl time.Duration) time.Duration {
	if f.expiresEarly {
		return ttl / 2
	}
	if f.cutsTTL && ttl > time.Second {
		return ttl.Truncate(time.Second)
	}
	return ttl
}

// tokens is how many a lock has that wraps them.
const tokens = 1000

// draw returns the next token of a lock. The caller holds the mutex.
func (f flaws) draw(r *record) uint64 {
	r.drawn++
	switch n := r.drawn; {
	case f.reusesTokens:
		return (n + 1) / 2
	case f.fallingTokens && n%4 == 0:
		return n - 2
	case f.wrapsTokens:
		return (n-1)%tokens + 1
	default:
		return n
	}
}

// lateToken draws a token after the grant.
func (s *store) lateToken(name string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flaws.draw(s.record(name))
}

// arm sets the timer to the holder's end. The caller holds the mutex.
func (s *store) arm(name string) {
	r := s.record(name)
	if r.timer != nil {
		r.timer.Stop()
	}
	if s.flaws.neverExpires {
		return
	}
	r.timer = time.AfterFunc(time.Until(r.holder.end), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expire(name)
		if s.flaws.losesWakeups && r.holder == nil {
			s.serve(name)
		}
	})
}

// expire ends a holding whose time is over and serves the queue. The caller holds the mutex.
func (s *store) expire(name string) {
	r := s.record(name)
	if r.holder == nil || s.flaws.neverExpires || time.Now().Before(r.holder.end) {
		return
	}
	switch lost := r.holder.lost; {
	case s.flaws.silent(), s.flaws.neverTells:
	case s.flaws.tellsLate:
		time.AfterFunc(r.holder.end.Sub(r.holder.begin)*3/2, func() { close(lost) })
	default:
		close(lost)
	}
	s.next(name)
}

// free ends the holding with that id, or returns false. The caller holds the mutex.
func (s *store) free(name string, id uint64) bool {
	s.expire(name)
	r := s.record(name)
	if r.holder == nil {
		return false
	}
	if r.holder.id != id && !s.flaws.freesForeign {
		return false
	}
	s.next(name)
	return true
}

// lostWakeup is that one in so many releases wakes nobody.
const lostWakeup = 20

// next hands the lock to a waiter or leaves it free. The caller holds the mutex.
func (s *store) next(name string) {
	r := s.record(name)
	ended := r.holder
	r.holder = nil
	if s.flaws.leavesRecords {
		s.left++
	}
	if s.flaws.losesWakeups && ended.id%lostWakeup == 0 && time.Now().Before(ended.end) {
		return // the timer goes on, as that of a waiter who looks again when the TTL is over
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	if s.price.Handoff > 0 && len(r.waiters) > 0 {
		s.handOver(name)
		return
	}
	s.serve(name)
}

// serve grants a free lock to a waiter, where there is one. The caller holds the mutex.
func (s *store) serve(name string) {
	r := s.record(name)
	if len(r.waiters) == 0 {
		return
	}
	i := 0
	if s.flaws.lastFirst {
		i = len(r.waiters) - 1
	}
	w := r.waiters[i]
	r.waiters = slices.Delete(r.waiters, i, i+1)
	w.given <- s.grant(name, w.ttl)
}

// release ends a holding.
func (s *store) release(name string, id uint64) bool {
	s.requests.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flaws.keepsReleased {
		return s.stands(name, id)
	}
	return s.free(name, id) || s.flaws.neverRefuses
}

// renew counts the holding's time anew, or returns false.
func (s *store) renew(name string, id uint64, ttl time.Duration) bool {
	s.requests.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stands(name, id) {
		return s.flaws.neverRefuses || s.flaws.retakes && s.retake(name, id, ttl)
	}
	if !s.flaws.forgetsRenewals {
		s.record(name).holder.end = time.Now().Add(s.flaws.life(ttl))
		s.arm(name)
	}
	return !s.flaws.deniesRenewals
}

// retake gives a free lock to a grant that is over. The caller holds the mutex.
func (s *store) retake(name string, id uint64, ttl time.Duration) bool {
	r := s.record(name)
	if r.holder != nil {
		return false
	}
	now := time.Now()
	r.holder = &holding{id: id, begin: now, end: now.Add(ttl), lost: make(chan struct{})}
	s.arm(name)
	return true
}

// look says who has a lock, and until when.
func (s *store) look(name string) topology.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(name)
	h := s.record(name).holder
	if h == nil {
		return topology.Stored{Holder: "none"}
	}
	out := topology.Stored{Holder: strconv.FormatUint(h.id, 10)}
	if !s.flaws.neverExpires {
		out.EndsIn = new(time.Until(h.end))
	}
	return out
}

// check tells whether the holding stands.
func (s *store) check(name string, id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stands(name, id)
}

func (s *store) stands(name string, id uint64) bool {
	s.expire(name)
	r := s.record(name)
	return r.holder != nil && r.holder.id == id
}
