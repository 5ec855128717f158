package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// v3lock is the lock service of the server: the same recipe as mutex, but run by the member that gets the call, in
// that member's version. Its Lock answers with the key that the caller owns. The token is that key's create revision.
// It takes a separate read, because after a wait the revision in the answer's header is another number. That read
// also finds what an etcd before 3.5 does not check: that the key had gone with its lease while the caller waited.
func v3lock() backends.Lock {
	return leased(backends.Lock{
		Name:      "v3lock",
		Doc:       "The server's own lock service (RPC v3lockpb.Lock), with the key read back for its create revision; the recipe runs in the server, in the server's version.",
		Offers:    backends.Offers{Reentrant: "session", Fair: true},
		Points:    []string{"before-lock", "lock-answered", "lock-done", "before-unlock", "unlock-done"},
		Recovery:  backends.RecoveryBy(lockParams, recovery),
		YesToGone: true,
		Dial:      dialer(func(u *user) lock.Locker { return &serviceUser{user: u} }),
	})
}

// serviceUser is one user of the server's lock service.
type serviceUser struct{ *user }

// stub returns the lock service's client, on the connection that all calls share.
func (u *serviceUser) stub() v3lockpb.LockClient {
	return v3lockpb.NewLockClient(u.conn.client.ActiveConnection())
}

// Acquire has the server wait.
func (u *serviceUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s, err := u.exclusively(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	issued := time.Now()
	key, err := u.ask(ctx, s, u.conn.keys().at(r.Lock))
	if err != nil {
		return lock.Grant{}, u.refused(ctx, s, err)
	}
	lock.At(ctx, "lock-answered")
	resp, err := u.conn.kv().Get(context.WithoutCancel(ctx), key)
	if err != nil {
		u.discard()
		return lock.Grant{}, fmt.Errorf("granted, but its key could not be read: get %s: %w", key, err)
	}
	if len(resp.Kvs) == 0 {
		u.discard()
		return lock.Grant{}, fmt.Errorf("%w: the server granted key %s, which was gone", lock.ErrLost, key)
	}
	lock.At(ctx, "lock-done")
	revision := resp.Kvs[0].CreateRevision
	return u.granted(r, issued, lock.Token(revision),
		&held{key: key, revision: revision, session: s, unlock: u.unlock(key)}), nil
}

// unlock gives a key back. The service also says yes if the key had gone with its lease.
func (u *serviceUser) unlock(key string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := u.stub().Unlock(ctx, &v3lockpb.UnlockRequest{Key: []byte(key)})
		return err
	}
}

// ask calls the service; the call ends with ctx or the session.
func (u *serviceUser) ask(ctx context.Context, s *session, name string) (key string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.inner.Ctx(), cancel)()
	resp, err := u.stub().Lock(ctx, &v3lockpb.LockRequest{Name: []byte(name), Lease: int64(s.lease)})
	if err != nil {
		return "", err
	}
	return string(resp.Key), nil
}

// refused classifies an error of the service. If the caller gave up, the server may go on to queue and to grant. Only
// an acknowledged revocation of the lease makes certain that nothing is left.
func (u *serviceUser) refused(ctx context.Context, s *session, err error) error {
	gone := errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) ||
		strings.Contains(err.Error(), concurrency.ErrSessionExpired.Error())
	if gaveUp(ctx, err) && !gone {
		u.session = nil
		bounded, done := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer done()
		if s.end(bounded) == nil {
			return fmt.Errorf("%w; gave up waiting, the lease is revoked: %w", lock.ErrContended, err)
		}
		return fmt.Errorf("etcd lock service: %w", err)
	}
	u.discard()
	if gone {
		return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, err)
	}
	return fmt.Errorf("etcd lock service: %w", err)
}
