package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// v3lockBlind is the lock service of the server, used by a caller who trusts its yes: it does not read the key back,
// and does not watch the session while the server waits. An etcd before 3.5 says yes to a waiter whose key went with
// its lease.
func v3lockBlind() backends.Lock {
	l := v3lock()
	l.Name = "v3lock-blind"
	l.Doc = "v3lock without a check of the key or session after the server's yes, as in Jepsen's test of etcd 3.4.3."
	l.Wrong = "etcd before 3.5 also grants the lock to a waiter whose lease has expired (issue 11456), and the client trusts the answer"
	l.Found = backends.FoundIn("waiter-cut",
		"an overlapping hold, only with `--set backend.version=3.4`", "overlapping_holds 0: found",
	)
	l.Offers.Token = backends.TokenNone
	l.Points = []string{"before-lock", "lock-done", "before-unlock", "unlock-done"}
	l.Dial = dialer(func(u *user) lock.Locker { return &blindUser{serviceUser{user: u}} })
	return l
}

// blindUser is one user who believes the server.
type blindUser struct{ serviceUser }

// Acquire waits in the server, whatever happens to the session meanwhile.
func (u *blindUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s, err := u.exclusively(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	issued := time.Now()
	resp, err := u.stub().Lock(ctx, &v3lockpb.LockRequest{
		Name:  []byte(u.conn.keys().at(r.Lock)),
		Lease: int64(s.lease),
	})
	if err != nil {
		return lock.Grant{}, u.refused(ctx, s, err)
	}
	lock.At(ctx, "lock-done")
	key := string(resp.Key)
	// The header's revision only distinguishes this grant from other grants of the session: after a wait it is not
	// the key's.
	h := &held{key: key, revision: resp.Header.GetRevision(), session: s, unlock: u.unlock(key)}
	return u.granted(r, issued, lock.NoToken, h), nil
}

// Check looks for the key, whose name contains the lease.
func (u *blindUser) Check(ctx context.Context, g lock.Grant) error {
	_, _, err := u.standing(ctx, g)
	return err
}
