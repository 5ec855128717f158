package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// chubby is Burrows' lock service (OSDI 2006, section 2.4) as a recipe on etcd: exclusive and shared mode,
// sequencers, and the lock-delay. cell describes its keys. A released lock is free at once. The lock of a dead
// session is not: the next user that asks finds a mark without its holder, and puts the mark under a lease of the
// length of the lock-delay. etcd's leader counts that down, so no client's clock matters. The delay begins when a
// user first asks, not at the death. A change of leader may stretch it to twice its length.
//
// There is no queue, so users who share can starve one who wants the lock exclusively.
func chubby() backends.Lock {
	return leased(backends.Lock{
		Name:     "chubby",
		Doc:      "Chubby's ideas (Burrows, OSDI 2006, section 2.4): exclusive and shared mode, a sequencer with the lock's generation, and a lock-delay before a lock that a dead session held is granted again.",
		Offers:   backends.Offers{Try: true, Reentrant: "no", Shared: true, Sequencer: true},
		Points:   []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		Recovery: backends.RecoveryBy(lockParams, chubbyRecovery),
		Dial:     dialer(func(u *user) lock.Locker { return &chubbyUser{user: u} }),
	})
}

// chubbyRecovery treats the lock-delay's lease like the session's: a new leader may renew it once, and etcd looks for
// expired leases twice a second.
func chubbyRecovery(ttl time.Duration, p LockParams) time.Duration {
	if p.LockDelay == 0 {
		return recovery(ttl, p)
	}
	return recovery(ttl, p) + 2*p.LockDelay + time.Second
}

// chubbyUser is one user.
type chubbyUser struct {
	*user
	attempts int
}

// Acquire tries again whenever one of the lock's keys is deleted.
func (u *chubbyUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s, err := u.begin(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	return s.persist(ctx, u.conn.keys().at(r.Lock)+"/", []clientv3.OpOption{clientv3.WithPrefix()},
		func() (lock.Grant, int64, error) { return u.attempt(ctx, s, r) })
}

// TryAcquire makes one attempt.
func (u *chubbyUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s, err := u.begin(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	g, _, err := u.attempt(ctx, s, r)
	return g, err
}

// attempt makes one transaction. If the lock is taken, it begins the lock-delay of dead holders, and returns the
// revision at which it saw the lock.
func (u *chubbyUser) attempt(ctx context.Context, s *session, r lock.Request) (lock.Grant, int64, error) {
	k := keysOf(u.conn.keys().at(r.Lock), r.Mode, s.lease)
	u.attempts++
	owner := fmt.Sprintf("%s %d", r.Mode, u.attempts)
	issued := time.Now()
	resp, err := s.commit(ctx, func(t clientv3.Txn) clientv3.Txn { return k.take(t, owner, s.lease) })
	if err != nil {
		return lock.Grant{}, 0, u.failed(err)
	}
	revision := resp.Header.Revision
	generation := generationOf(resp)
	if !resp.Succeeded {
		c := cellOf(u.conn.keys().at(r.Lock), resp.Responses[0].GetResponseRange().Kvs)
		mine := c.held[leaseText(s.lease)]
		if mine == nil || string(mine.Value) != owner { // otherwise the library had sent the transaction twice
			return u.contended(ctx, s, c, revision)
		}
		revision, generation = mine.CreateRevision, c.generation
	}
	lock.At(ctx, "lock-done")
	h := &held{key: k.held, revision: revision, session: s}
	h.unlock = func(ctx context.Context) error {
		return s.remove(ctx, h, clientv3.OpDelete(k.held), clientv3.OpDelete(k.mark))
	}
	return u.granted(r, issued, lock.Token(generation), h), revision, nil
}

// contended begins the lock-delays that are due. In any case nothing was granted. If one could not be begun, it
// returns no revision to wait from, because then no key may ever be deleted.
func (u *chubbyUser) contended(ctx context.Context, s *session, c cell, seen int64) (lock.Grant, int64, error) {
	for _, mark := range c.dead() {
		if err := s.delay(ctx, c.path, mark); err != nil {
			return lock.Grant{}, 0, fmt.Errorf("%w, and its lock-delay could not be begun: %w", lock.ErrContended, err)
		}
	}
	return lock.Grant{}, seen, fmt.Errorf("%w: %s", lock.ErrContended, c.taken())
}

// CheckSequencer asks etcd whether the lock is still held as the sequencer says.
func (u *chubbyUser) CheckSequencer(ctx context.Context, q lock.Sequencer) error {
	return checkSequencer(ctx, u.conn.kv(), u.conn.keys().at(q.Lock), q)
}

// Close releases the user's locks: if they ended only with the session, they would have their lock-delay. The releases
// have half of the time that a call may take, and all of it is the limit for both.
func (u *chubbyUser) Close() error {
	timeout := u.conn.params.Timeout
	ctx, done := context.WithTimeout(context.WithoutCancel(u.conn.client.Ctx()), timeout)
	defer done()
	half, halfDone := context.WithTimeout(ctx, timeout/2)
	defer halfDone()
	for _, h := range u.held {
		_ = h.unlock(half) // otherwise the end of the session frees it, later
	}
	return u.user.close(ctx)
}
