// Command etcd35 runs the Mutex of etcd's client library, in the module used since etcd 3.5.
package main

import (
	"context"
	"fmt"
	"reflect"
	"time"

	lockquake "github.com/lockquake/lockquake/clients/go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type user struct {
	access  *lockquake.Access
	client  *clientv3.Client
	session *concurrency.Session
}

func main() {
	lockquake.Main("etcd concurrency", func(a *lockquake.Access) (*user, error) {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: a.Addresses("client"), DialTimeout: a.Timeout(),
		})
		return &user{access: a, client: c}, err
	})
}

// open creates a session if there is none or the last one has ended.
func (u *user) open(ctx context.Context) error {
	if u.session != nil {
		select {
		case <-u.session.Done():
		default:
			return nil
		}
	}
	seconds := int64((u.access.TTL() + time.Second - 1) / time.Second)
	lease, err := u.client.Grant(ctx, seconds)
	if err == nil {
		u.session, err = concurrency.NewSession(u.client, concurrency.WithLease(lease.ID))
	}
	return err
}

// Acquire trusts the library's success, as users do who do not watch the session. The grant lasts as long as the
// session, which the library keeps alive.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	if err := u.open(ctx); err != nil {
		return lockquake.Grant{}, err
	}
	sent := lockquake.Now()
	m := concurrency.NewMutex(u.session, "lockquake/"+name)
	if err := m.Lock(ctx); err != nil {
		return lockquake.Grant{}, err
	}
	revision := reflect.ValueOf(m).Elem().FieldByName("myRev").Int() // the revision that created its key
	id := fmt.Sprintf("%s@%d", m.Key(), revision)
	g := lockquake.Grant{ID: id, Sent: sent, Valid: lockquake.Unknown, Token: uint64(revision), Handle: m}
	if valid, err := u.Renew(ctx, g); err == nil {
		g.Valid = valid
	}
	return g, nil
}

// Renew renews the lease of the session.
func (u *user) Renew(ctx context.Context, _ lockquake.Grant) (int64, error) {
	sent := lockquake.Now()
	_, err := u.client.KeepAliveOnce(ctx, u.session.Lease())
	if err == rpctypes.ErrLeaseNotFound {
		err = lockquake.ErrNotHeld
	}
	return u.access.Valid(sent), err
}

func (u *user) Release(ctx context.Context, g lockquake.Grant) error {
	return g.Handle.(*concurrency.Mutex).Unlock(ctx)
}
