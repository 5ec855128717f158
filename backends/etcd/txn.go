package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// txn is the short recipe that many write by hand: the user who creates the key has the lock.
func txn() backends.Lock {
	return leased(backends.Lock{
		Name:     "txn",
		Doc:      "One fixed key, put under the session's lease if its create revision is 0. Every waiter watches that key and retries when it is deleted: a herd.",
		Offers:   backends.Offers{Try: true, Reentrant: "no"},
		Points:   []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		Recovery: backends.RecoveryBy(lockParams, recovery),
		Dial:     dialer(func(u *user) lock.Locker { return &txnUser{user: u} }),
	})
}

// txnUser is one user of the one key.
type txnUser struct {
	*user
	attempts int
}

// Acquire tries again whenever the key is deleted.
func (u *txnUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s, err := u.exclusively(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	return s.persist(ctx, u.conn.keys().at(r.Lock), nil,
		func() (lock.Grant, int64, error) { return u.attempt(ctx, s, r) })
}

// TryAcquire makes one attempt.
func (u *txnUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s, err := u.exclusively(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	g, _, err := u.attempt(ctx, s, r)
	return g, err
}

// attempt makes one transaction. With ErrContended it returns the revision at which it saw the key.
func (u *txnUser) attempt(ctx context.Context, s *session, r lock.Request) (lock.Grant, int64, error) {
	key := u.conn.keys().at(r.Lock)
	u.attempts++
	owner := fmt.Sprintf("%x/%d", int64(s.lease), u.attempts)
	issued := time.Now()
	resp, err := s.commit(ctx, func(t clientv3.Txn) clientv3.Txn {
		return t.If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, owner, clientv3.WithLease(s.lease))).
			Else(clientv3.OpGet(key))
	})
	if err != nil {
		return lock.Grant{}, 0, u.failed(err)
	}
	revision := resp.Header.Revision // of the put, and thus the key's create revision
	if !resp.Succeeded {
		kvs := resp.Responses[0].GetResponseRange().Kvs
		// If the library sent the transaction twice, the second one finds its own key.
		if len(kvs) == 0 || string(kvs[0].Value) != owner {
			return lock.Grant{}, revision, fmt.Errorf("%w: %s is there", lock.ErrContended, key)
		}
		revision = kvs[0].CreateRevision
	}
	lock.At(ctx, "lock-done")
	h := &held{key: key, revision: revision, session: s}
	h.unlock = func(ctx context.Context) error { return s.remove(ctx, h, clientv3.OpDelete(key)) }
	return u.granted(r, issued, lock.Token(revision), h), revision, nil
}

// failed classifies an error of a transaction. Only a missing lease is certain: then nothing was put. The session is
// given up, because a key may be left behind under it.
func (u *user) failed(err error) error {
	u.discard()
	if errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, err)
	}
	return fmt.Errorf("etcd transaction: %w", err)
}

// commit sends a transaction within the call's timeout. It outlives ctx by the grace, because an answer within that
// time makes the outcome known.
func (s *session) commit(ctx context.Context, build func(clientv3.Txn) clientv3.Txn) (*clientv3.TxnResponse, error) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.conn.params.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		clock.Sleep(bounded, grace)
		cancel()
	})()
	return build(s.conn.client.Txn(bounded)).Commit()
}

// remove ends a grant by deleting its keys, if the key is still the grant's own.
func (s *session) remove(ctx context.Context, h *held, ops ...clientv3.Op) error {
	resp, err := s.conn.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(h.key), "=",
		h.revision)).Then(ops...).Commit()
	if err != nil {
		return err
	}
	if !resp.Succeeded {
		return fmt.Errorf("%w: %s is gone", lock.ErrNotHeld, h.key)
	}
	return nil
}

// persist calls attempt until it is no longer contended. Between two attempts it waits until something under key
// (watched with opts) is deleted after the revision that the attempt saw. If the attempt saw none, it waits for
// lookAgain.
func (s *session) persist(ctx context.Context, key string, opts []clientv3.OpOption,
	attempt func() (lock.Grant, int64, error),
) (lock.Grant, error) {
	for {
		g, seen, err := attempt()
		if !errors.Is(err, lock.ErrContended) {
			return g, err
		}
		if err = errNothingSeen; seen > 0 {
			err = s.awaitDelete(ctx, key, append(opts[:len(opts):len(opts)], clientv3.WithRev(seen+1)))
		}
		switch {
		case ctx.Err() != nil:
			return lock.Grant{}, fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, ctx.Err())
		case s.inner.Ctx().Err() != nil:
			return lock.Grant{}, fmt.Errorf("%w before it was granted: the session ended", lock.ErrLost)
		case err != nil: // nothing to wait for: ask again after a pause
			clock.Sleep(ctx, lookAgain)
		}
	}
}

// lookAgain is the pause of a waiter that has nothing to watch.
const lookAgain = 50 * time.Millisecond

// awaitDelete returns when something was deleted, when the watch broke, or when ctx or the session ended. A watch at
// a member without a leader breaks, because it would see nothing.
func (s *session) awaitDelete(ctx context.Context, key string, opts []clientv3.OpOption) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(s.inner.Ctx(), cancel)()
	for resp := range s.conn.client.Watch(ctx, key, append(opts, clientv3.WithFilterPut())...) {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("watch %s: %w", key, err)
		}
		for _, e := range resp.Events {
			if e.Type == mvccpb.Event_DELETE {
				return nil
			}
		}
	}
	return errWatchEnded
}

var (
	errWatchEnded  = errors.New("the watch ended")
	errNothingSeen = errors.New("there is nothing to wait for")
)
