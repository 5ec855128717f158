// Command etcdelection uses the Election of etcd's client library as a lock, which is held once Campaign returns.
package main

import (
	"context"
	"fmt"
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
	lockquake.Main("etcd Election", func(a *lockquake.Access) (*user, error) {
		c, err := clientv3.New(clientv3.Config{Endpoints: a.Addresses("client"), DialTimeout: a.Timeout()})
		return &user{access: a, client: c}, err
	})
}

// open creates a session if there is none or the last one has ended.
func (u *user) open() error {
	if u.session != nil {
		select {
		case <-u.session.Done():
		default:
			return nil
		}
	}
	s, err := concurrency.NewSession(u.client, concurrency.WithTTL(int((u.access.TTL()+time.Second-1)/time.Second)))
	u.session = s
	return err
}

// Acquire trusts the library's success, as users do who do not watch the session.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	if err := u.open(); err != nil {
		u.session = nil
		return lockquake.Grant{}, err
	}
	sent := lockquake.Now()
	e := concurrency.NewElection(u.session, "lockquake/"+name)
	if err := e.Campaign(ctx, "lockquake"); err != nil {
		return lockquake.Grant{}, err
	}
	g := lockquake.Grant{
		ID: fmt.Sprintf("%s@%d", e.Key(), e.Rev()), Token: uint64(e.Rev()), Sent: sent, Valid: lockquake.Unknown, Handle: e,
	}
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
	return g.Handle.(*concurrency.Election).Resign(ctx)
}
