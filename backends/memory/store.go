package memory

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// flaws lists the ways in which a store is wrong. The zero value is correct.
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
	leavesRecords   bool
	cutsTTL         bool
	losesWakeups    bool
	retakes         bool
	oneMore         bool
	forgetsEntries  bool
	admitsProcess   bool
	freesAgain      bool
	freesBeside     bool
	strandsWaiters  bool
	renewsForever   bool
	waitsWhenGone   bool
	likensOwners    bool
	wrapsTTL        bool
	leavesWaits     bool
	key             func(name string) string // what a lock is known by; nil: its name
}

// silent reports whether the store says nothing when a grant ends. If it informed its victims it would hide the
// violation, because a hold ends when its user learns of the loss.
func (f flaws) silent() bool {
	return f.neverRefuses || f.neverExcludes || f.expiresEarly || f.forgetsRenewals || f.cutsTTL || f.wrapsTTL ||
		f.freesForeign || f.neverExpires || f.retakes || f.likensOwners || f.oneMore || f.forgetsEntries ||
		f.admitsProcess
}

// store is the service: what a server would keep.
type store struct {
	flaws flaws
	price price
	// permits is how many users may hold one lock at once; 0 means 1. reenters lets a holder take a lock again.
	permits  int
	reenters bool
	server   server       // the price's serial server
	users    atomic.Int64 // connected users
	// requests counts all calls to the store.
	requests atomic.Int64

	mu     sync.Mutex
	locks  map[string]*record
	grants uint64          // the last id and token given out
	left   int64           // records left behind by ended grants and waits
	freed  map[uint64]bool // ids of released grants; only with freesAgain
}

// record is one lock.
type record struct {
	holders []*holding // none: free
	waiters []*waiter
	drawn   uint64        // tokens given out so far
	late    time.Duration // by how much the previous handoff was late
}

// holding is a grant as the store sees it.
type holding struct {
	id    uint64
	token uint64
	begin time.Time
	end   time.Time
	lost  chan struct{} // closed when the grant runs out; never by a silent store
	timer *time.Timer   // fires at the end; nil: it never ends by itself
	owner any           // who may take it again
	again int           // how often it was taken again and not yet given back
}

// waiter is a user in the queue.
type waiter struct {
	ttl   time.Duration
	owner any
	given chan *holding // capacity 1
}

func (s *store) record(name string) *record {
	if s.flaws.key != nil {
		name = s.flaws.key(name)
	}
	r, ok := s.locks[name]
	if !ok {
		r = &record{}
		s.locks[name] = r
	}
	return r
}

// try grants at once, or returns nil.
func (s *store) try(name string, ttl time.Duration, owner any) *holding {
	s.requests.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(name, ttl, owner)
}

// acquire waits in the queue until the lock is granted or ctx ends.
func (s *store) acquire(ctx context.Context, name string, ttl time.Duration, owner any) (*holding, error) {
	for s.flaws.storms {
		if h := s.try(name, ttl, owner); h != nil {
			return h, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		runtime.Gosched()
	}
	s.requests.Add(1)
	s.mu.Lock()
	if h := s.take(name, ttl, owner); h != nil {
		s.mu.Unlock()
		return h, nil
	}
	w := &waiter{ttl: ttl, owner: owner, given: make(chan *holding, 1)}
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
	if s.flaws.leavesWaits {
		s.left++
	}
	r.waiters = slices.DeleteFunc(r.waiters, func(o *waiter) bool { return o == w })
	select {
	case h := <-w.given: // granted at the last moment, but the waiter has left: give it back
		s.free(name, h.id)
	default:
	}
	return nil, ctx.Err()
}

// take grants the lock if it is free and has no waiters. The caller holds the mutex.
func (s *store) take(name string, ttl time.Duration, owner any) *holding {
	r := s.record(name)
	s.expire(name)
	if s.flaws.neverExcludes {
		for _, h := range r.holders {
			h.disarm()
		}
		r.holders = nil
		return s.grant(name, ttl, owner)
	}
	if i := slices.IndexFunc(r.holders, func(h *holding) bool { return h.owner == owner }); s.reenters && i >= 0 {
		h := r.holders[i]
		h.again++
		h.begin = time.Now()
		h.end = h.begin.Add(s.flaws.life(ttl))
		s.arm(name, h)
		return h
	}
	if len(r.holders) >= s.room() || len(r.waiters) > 0 {
		return nil
	}
	return s.grant(name, ttl, owner)
}

// room returns how many users may hold one lock.
func (s *store) room() int {
	if s.flaws.oneMore && s.permits > 1 {
		return s.permits + 1
	}
	return max(1, s.permits)
}

// grant creates a new holding. The caller holds the mutex.
func (s *store) grant(name string, ttl time.Duration, owner any) *holding {
	r := s.record(name)
	s.grants++
	now := time.Now()
	h := &holding{id: s.grants, begin: now, end: now.Add(s.flaws.life(ttl)), lost: make(chan struct{}), owner: owner}
	if !s.flaws.lateFence {
		h.token = s.flaws.draw(r)
	}
	r.holders = append(r.holders, h)
	s.arm(name, h)
	return h
}

// life returns how long a store really keeps a promise of ttl.
func (f flaws) life(ttl time.Duration) time.Duration {
	if f.expiresEarly {
		return ttl / 2
	}
	if f.cutsTTL && ttl > time.Second {
		return ttl.Truncate(time.Second)
	}
	if f.wrapsTTL {
		return time.Duration(uint32(ttl.Milliseconds())) * time.Millisecond //nolint:gosec // the overflow is the point
	}
	return ttl
}

// tokens is the number of distinct tokens with wrapsTokens.
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

// disarm keeps a holding from ending by itself.
func (h *holding) disarm() {
	if h.timer != nil {
		h.timer.Stop()
	}
}

// arm sets the timer to the end of a holding. The caller holds the mutex.
func (s *store) arm(name string, h *holding) {
	h.disarm()
	if s.flaws.neverExpires {
		return
	}
	h.timer = time.AfterFunc(time.Until(h.end), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.expire(name)
		if s.flaws.losesWakeups && len(s.record(name).holders) < s.room() {
			s.serve(name)
		}
	})
}

// expire ends the holdings whose time is over and serves the queue. The caller holds the mutex.
func (s *store) expire(name string) {
	if s.flaws.neverExpires {
		return
	}
	for _, h := range slices.Clone(s.record(name).holders) {
		if time.Now().Before(h.end) {
			continue
		}
		switch lost := h.lost; {
		case s.flaws.silent(), s.flaws.neverTells:
		case s.flaws.tellsLate:
			time.AfterFunc(h.end.Sub(h.begin)*3/2, func() { close(lost) })
		default:
			close(lost)
		}
		s.next(name, h)
	}
}

// find returns the holding with that id, or nil.
func (r *record) find(id uint64) *holding {
	if i := slices.IndexFunc(r.holders, func(h *holding) bool { return h.id == id }); i >= 0 {
		return r.holders[i]
	}
	return nil
}

// free ends the holding with that id, and reports whether there was one. The caller holds the mutex.
func (s *store) free(name string, id uint64) bool {
	s.expire(name)
	r := s.record(name)
	h := r.find(id)
	if h == nil && len(r.holders) > 0 && (s.flaws.freesForeign || s.freed[id] || s.flaws.likens(id, r.holders[0].id)) {
		h = r.holders[0]
	}
	if h == nil {
		return false
	}
	if h.again > 0 && !s.flaws.forgetsEntries {
		h.again--
		return true
	}
	s.next(name, h)
	return true
}

// likens reports whether a grant is mistaken for the holder's, because the holder's id begins with its id.
func (f flaws) likens(id, holder uint64) bool {
	return f.likensOwners && strings.HasPrefix(strconv.FormatUint(holder, 10), strconv.FormatUint(id, 10))
}

// lostWakeup: one in so many releases wakes no waiter.
const lostWakeup = 20

// next removes an ended holding and hands its lock to a waiter, or leaves it free. The caller holds the mutex.
func (s *store) next(name string, ended *holding) {
	r := s.record(name)
	r.holders = slices.DeleteFunc(r.holders, func(h *holding) bool { return h == ended })
	if s.flaws.leavesRecords {
		s.left++
	}
	if s.flaws.losesWakeups && ended.id%lostWakeup == 0 && time.Now().Before(ended.end) {
		return // the timer stays armed, like that of a waiter who looks again after the TTL
	}
	ended.disarm()
	if s.price.Handoff > 0 && len(r.waiters) > 0 {
		s.handOver(name)
		return
	}
	s.serve(name)
}

// serve grants a free lock to a waiter, if there is one. The caller holds the mutex.
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
	w.given <- s.grant(name, w.ttl, w.owner)
}

// release gives a holding back. over means that it has ended: it has no re-entries left. ok is false if there was no
// such holding.
func (s *store) release(name string, id uint64) (over, ok bool) {
	s.requests.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flaws.keepsReleased {
		return true, s.stands(name, id)
	}
	if ok = s.free(name, id); ok && s.flaws.freesAgain {
		s.freed[id] = true
	}
	return s.record(name).find(id) == nil, ok || s.flaws.neverRefuses
}

// renew restarts the holding's time, and reports whether it did.
func (s *store) renew(name string, id uint64, ttl time.Duration) bool {
	s.requests.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stands(name, id) {
		return s.flaws.neverRefuses || s.flaws.retakes && s.retake(name, id, ttl)
	}
	if !s.flaws.forgetsRenewals {
		h := s.record(name).find(id)
		h.end = time.Now().Add(s.flaws.life(ttl))
		s.arm(name, h)
	}
	return !s.flaws.deniesRenewals
}

// retake gives a free lock to an ended grant. The caller holds the mutex.
func (s *store) retake(name string, id uint64, ttl time.Duration) bool {
	r := s.record(name)
	if len(r.holders) > 0 {
		return false
	}
	now := time.Now()
	h := &holding{id: id, begin: now, end: now.Add(ttl), lost: make(chan struct{})}
	r.holders = append(r.holders, h)
	s.arm(name, h)
	return true
}

// look returns the holder of a lock, and until when it holds; of several holders, the first.
func (s *store) look(name string) topology.Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(name)
	holders := s.record(name).holders
	if len(holders) == 0 {
		return topology.Stored{Holder: "none"}
	}
	h := holders[0]
	out := topology.Stored{Holder: strconv.FormatUint(h.id, 10)}
	if !s.flaws.neverExpires {
		out.EndsIn = new(time.Until(h.end))
	}
	return out
}

// check reports whether the holding still exists.
func (s *store) check(name string, id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stands(name, id)
}

func (s *store) stands(name string, id uint64) bool {
	s.expire(name)
	return s.record(name).find(id) != nil
}
