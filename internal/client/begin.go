package client

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// What users check before a write.
const (
	checkNothing  = ""
	checkSignal   = "signal"
	checkValidity = "validity"
)

// maxLocks is the largest number of locks that an event can name.
const maxLocks = 1 << 16

// maxUsers is the largest number of users of one client that an event can name.
const maxUsers = 1 << 16

// defaultTimeout bounds an operation if the start frame sets no timeout.
const defaultTimeout = 10 * time.Second

// begin prepares what the start frame asks for: it connects, and makes a locker for each user.
func (s *session) begin(st *wire.Start) error {
	l, err := s.understand(st)
	if err != nil {
		return err
	}
	if st.OwnClock {
		clock.FollowStops()
	}
	if st.Record {
		s.rec = wire.NewRecorder(s.conn, st.Format, st.Locks)
	}
	s.pulse = wire.StartPulse(s.rec, s.userName(0), func(err error) { s.end(err) })
	ctx, cancel := context.WithTimeout(s.life, dialTimeout)
	defer cancel()
	s.service, err = l.Dial(ctx, s.access)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", s.access.Backend, err)
	}
	n := 1 // command mode prepares the first user; others are made when they are named
	if st.Workload != nil {
		n = st.Workload.Users
	}
	return s.grow(ctx, n)
}

// understand checks the start frame and resolves the names in it.
func (s *session) understand(st *wire.Start) (backends.Lock, error) {
	none := backends.Lock{}
	if st.Format != wire.FormatRecords && st.Format != wire.FormatJSONL {
		return none, fmt.Errorf("format is %q: want %s or %s", st.Format, wire.FormatRecords, wire.FormatJSONL)
	}
	if !slices.Contains([]string{checkNothing, checkSignal, checkValidity}, st.Check) {
		return none, fmt.Errorf("check is %q: want %q, %q or nothing", st.Check, checkSignal, checkValidity)
	}
	if err := json.Unmarshal(st.Access, &s.access); err != nil {
		return none, fmt.Errorf("access: %w", err)
	}
	i := slices.IndexFunc(s.o.Backends, func(b backends.Backend) bool { return b.Name == s.access.Backend })
	if i < 0 {
		return none, fmt.Errorf("there is no backend %q", s.access.Backend)
	}
	l, ok := s.o.Backends[i].Lock(s.access.Lock)
	if !ok {
		return none, fmt.Errorf("backend %s has no lock %q", s.access.Backend, s.access.Lock)
	}
	if st.Resource != nil {
		k, ok := resource.Find(s.o.Resources, st.Resource.Use)
		if !ok {
			return none, fmt.Errorf("there is no resource %q", st.Resource.Use)
		}
		s.resource = &k
	}
	s.start = st
	s.timeout = time.Duration(st.Timeout)
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	return l, s.makeWorkload(st)
}

func (s *session) makeWorkload(st *wire.Start) error {
	if n := len(st.Locks); n > maxLocks {
		return fmt.Errorf("the run has %d locks: want at most %d, the limit of an event", n, maxLocks)
	}
	if st.Workload == nil {
		return nil
	}
	w := st.Workload
	i := slices.IndexFunc(s.o.Workloads, func(k workloads.Kind) bool { return k.Name == w.Use })
	if i < 0 {
		return fmt.Errorf("there is no workload %q", w.Use)
	}
	if w.Users < 1 || w.Users > maxUsers {
		return fmt.Errorf("workload has %d users: want 1 to %d", w.Users, maxUsers)
	}
	if w.Total == 0 {
		w.Total = w.Users
	}
	made, err := s.o.Workloads[i].New(func(into any) error { return backends.DecodeParams(w.Params, into) })
	if err != nil {
		return fmt.Errorf("workload %s: %w", w.Use, err)
	}
	if n := made.Locks(w.Total); n > len(st.Locks) {
		return fmt.Errorf("workload %s uses %d locks, the run has %d", w.Use, n, len(st.Locks))
	}
	if made.NeedsResource() && s.resource == nil {
		return fmt.Errorf("workload %s needs a resource, the run has none", w.Use)
	}
	s.workload = made
	b, ok := made.(workloads.Brief)
	s.brief = ok && b.GivesBackAtOnce()
	return nil
}

// grow makes users until there are n.
func (s *session) grow(ctx context.Context, n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.users) < n {
		u, err := s.newUser(ctx, len(s.users))
		if err != nil {
			return err
		}
		s.users = append(s.users, u)
	}
	return nil
}

// newUser connects one user.
func (s *session) newUser(ctx context.Context, number int) (*user, error) {
	u := &user{s: s, name: s.userName(number), number: number, given: map[int]lock.Grant{}}
	u.points.user = u
	u.base = u.at(s.life)
	u.calls, u.over = context.WithCancel(u.base)
	var err error
	if u.locker, err = s.service.Locker(ctx, number); err != nil {
		return nil, fmt.Errorf("locker of user %d: %w", number, err)
	}
	u.watcher, _ = u.locker.(lock.Watcher)
	if r, ok := u.locker.(lock.Renewer); ok && s.start.Renew {
		u.renewer = r
	}
	if s.start.Check == checkSignal && u.watcher == nil && u.renewer == nil {
		_ = u.locker.Close() // the user cannot use it
		return nil, fmt.Errorf("check is %q, but lock %s reports no loss: want %q, or a lock with a loss signal, or renew",
			checkSignal, s.access.Lock, checkValidity)
	}
	if s.resource != nil {
		t := resource.Target{
			Address: s.start.Resource.Address, Guard: s.start.Resource.Guard,
			Password: s.start.Resource.Password, Access: s.start.Access,
		}
		if u.res, err = s.resource.Dial(ctx, t); err != nil {
			_ = u.locker.Close()
			return nil, fmt.Errorf("resource of user %d: %w", number, err)
		}
	}
	u.random = newRandom(s.start.Seed, number)
	return u, nil
}
