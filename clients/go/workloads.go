package lockquake

import (
	"math"
	"math/rand"
	"sort"
	"time"
)

// params are the parameters of all workloads; times are in ns.
type params struct {
	Locks, Accounts      int
	OwnLocks             bool `json:"own_locks"`
	Hold, Think, Touch   time.Duration
	Every                int64
	Shared, Rate, Skew   float64
	Arrivals, Pick       string
	Spread               bool
	Amount, Stock, Seats int64
	Jobs                 int64
}

// workloads are what users run. A cycle that has begun is finished, and its grant released.
var workloads map[string]func(*session, *user, *params)

func init() { // a variable's initializer would refer to itself
	workloads = map[string]func(*session, *user, *params){
		"acquire-release": acquireRelease, "counter": counter, "guarded-set": guardedSet, "inventory": inventory,
		"booking": booking,
		"balance": balance, "hold-renew": holdRenew, "stampede": stampede, "spread": spread, "once": once,
	}
}

// closed runs cycles until the stop, and pauses after one that did not get the lock.
func closed(s *session, u *user, p *params, cycle func() error) {
	for s.load.Err() == nil {
		if cycle() != nil {
			s.sleep(5*time.Millisecond + time.Duration(u.random.Int63n(int64(10*time.Millisecond))))
		}
		s.sleep(p.Think)
	}
}

// inside runs closed cycles, each of which calls do under the lock that choose returns. Errors there are recorded.
func inside(s *session, u *user, p *params, choose func() int, do func(*hold)) {
	closed(s, u, p, func() error {
		h, err := u.acquire(choose(), 0, s.timeout)
		if err != nil {
			return err
		}
		do(h)
		_ = h.release(s.timeout)
		return nil
	})
}

// self returns the user's number among the users of all processes.
func (u *user) self() int { return u.s.start.Index*u.s.start.Workload.Users + u.number }

// anyOf returns a function that picks any of the locks at random.
func anyOf(u *user, p *params) func() int {
	return func() int {
		if p.Locks <= 1 {
			return 0
		}
		return u.random.Intn(p.Locks)
	}
}

// change reads the value, waits, and writes the result of next, unless next returns false.
func (h *hold) change(wait time.Duration, next func(int64) (int64, bool)) {
	s := h.user.s
	n, err := h.read(s.timeout)
	if err != nil {
		return
	}
	if n, ok := next(n); ok {
		s.sleep(wait)
		_ = h.write(n, s.timeout) // errors are recorded
	}
}

func acquireRelease(s *session, u *user, p *params) {
	choose := anyOf(u, p)
	if p.OwnLocks {
		choose = u.self
	}
	if p.Rate == 0 {
		inside(s, u, p, choose, func(*hold) { s.sleep(p.Hold) })
		return
	}
	for {
		t, ok := s.nextArrival(p)
		if !ok {
			return
		}
		if h, err := u.acquire(choose(), t, s.timeout); err == nil {
			s.sleep(p.Hold)
			_ = h.release(s.timeout)
		}
		u.free = Now()
	}
}

func counter(s *session, u *user, p *params) {
	inside(s, u, p, anyOf(u, p), func(h *hold) { h.change(p.Hold, func(n int64) (int64, bool) { return n + 1, true }) })
}

func guardedSet(s *session, u *user, p *params) {
	element := int64(u.self()+1) << 32
	inside(s, u, p, anyOf(u, p), func(h *hold) {
		wait := p.Hold
		if p.Spread && wait > 0 {
			wait = time.Duration(u.random.Int63n(int64(wait) + 1))
		}
		h.change(wait, func(int64) (int64, bool) { element++; return element, true })
	})
}

func inventory(s *session, u *user, p *params) {
	inside(s, u, p, anyOf(u, p), func(h *hold) {
		h.change(p.Hold,
			func(sold int64) (int64, bool) { return sold + 1, sold < p.Stock })
	})
}

func booking(s *session, u *user, p *params) {
	seat, made := int64(0), int64(u.self()+1)<<32
	closed(s, u, p, func() error {
		if seat == p.Seats {
			<-s.load.Done()
			return errStopped
		}
		h, err := u.acquire(int(seat), 0, s.timeout)
		if err != nil {
			return err
		}
		h.change(p.Hold, func(taken int64) (int64, bool) {
			if taken != 0 {
				seat++
				return 0, false
			}
			made++
			return made, true
		})
		_ = h.release(s.timeout)
		return nil
	})
}

func balance(s *session, u *user, p *params) {
	closed(s, u, p, func() error {
		low, high := u.random.Intn(p.Accounts), 1+u.random.Intn(p.Accounts-1)
		if high = (low + high) % p.Accounts; low > high { // locks are taken in order, so that no two users deadlock
			low, high = high, low
		}
		amount := (1 + u.random.Int63n(p.Amount)) * int64(1-2*u.random.Intn(2))
		first, err := u.acquire(low, 0, s.timeout)
		if err != nil {
			return err
		}
		second, err := u.acquire(high, 0, s.timeout)
		if err == nil {
			transfer(s, p, first, second, amount)
			_ = second.release(s.timeout)
		}
		_ = first.release(s.timeout)
		return err
	})
}

func transfer(s *session, p *params, first, second *hold, amount int64) {
	a, err := first.read(s.timeout)
	if err != nil {
		return
	}
	b, err := second.read(s.timeout)
	if err != nil {
		return
	}
	s.sleep(p.Hold)
	if first.write(a-amount, s.timeout) == nil {
		_ = second.write(b+amount, s.timeout)
	}
}

func holdRenew(s *session, u *user, p *params) {
	inside(s, u, p, anyOf(u, p), func(h *hold) {
		for left := p.Hold; left > 0 && s.load.Err() == nil; {
			part := left
			if p.Touch > 0 && p.Touch < left {
				part = p.Touch
			}
			s.sleep(part)
			left -= part
			if p.Touch > 0 {
				h.change(0, func(n int64) (int64, bool) { return n + 1, true })
			}
		}
	})
}

// rounds calls do under a lock at moments that all users share.
func rounds(s *session, u *user, p *params, choose func(t int64) int, do func(h *hold, t int64)) {
	for {
		t := (Now()/p.Every + 1) * p.Every
		if !s.sleepUntil(t) {
			return
		}
		if h, err := u.acquire(choose(t), t, s.timeout); err == nil {
			do(h, t)
			_ = h.release(s.timeout)
		}
	}
}

func stampede(s *session, u *user, p *params) {
	rounds(s, u, p, func(int64) int { return 0 }, func(*hold, int64) { s.sleep(p.Hold) })
}

func once(s *session, u *user, p *params) {
	rounds(s, u, p, func(t int64) int { return int(t / p.Every % p.Jobs) }, func(h *hold, t int64) {
		h.change(p.Hold, func(done int64) (int64, bool) { return t / p.Every, done < t/p.Every })
	})
}

func spread(s *session, u *user, p *params) {
	choose := anyOf(u, p)
	if p.Pick == "zipf" {
		sums, sum := make([]float64, p.Locks), 0.0
		for k := range sums {
			sum += math.Pow(float64(k+1), -p.Skew)
			sums[k] = sum
		}
		choose = func() int { return sort.SearchFloat64s(sums, u.random.Float64()*sum) }
	}
	inside(s, u, p, choose, func(*hold) { s.sleep(p.Hold) })
}

// nextArrival waits for the next arrival of an open loop, and returns false at the stop. One user waits for it; the
// others wait for their turn.
func (s *session) nextArrival(p *params) (int64, bool) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.gap == 0 {
		w := s.start.Workload
		s.random = rand.New(rand.NewSource(int64(s.start.Seed)))
		total := w.Total
		if total == 0 {
			total = w.Users
		}
		s.gap = 1e9 / p.Rate * float64(total) / float64(w.Users)
		s.arrival = float64(s.goTime)
		if p.Arrivals == "uniform" {
			s.arrival += s.random.Float64() * s.gap
		} else {
			s.step()
		}
	}
	if s.load.Err() != nil {
		return 0, false
	}
	t := int64(s.arrival)
	s.step()
	if s.sleepUntil(t) {
		return t, true
	}
	if t <= Now() {
		s.skipped++
	}
	return 0, false
}

// step moves on to the next arrival.
func (s *session) step() {
	if s.start.Workload.Params.Arrivals == "uniform" {
		s.arrival += s.gap
	} else {
		s.arrival += s.random.ExpFloat64() * s.gap
	}
}
