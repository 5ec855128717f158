// Command etcdrw31 runs the write lock of the RWMutex in the recipes of etcd 3.1.
package main

import (
	"context"
	"reflect"
	"time"

	"github.com/coreos/etcd/clientv3"
	"github.com/coreos/etcd/clientv3/concurrency"
	recipe "github.com/coreos/etcd/contrib/recipes"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

type user struct {
	access  *lockquake.Access
	client  *clientv3.Client
	session *concurrency.Session
}

func main() {
	lockquake.Main("etcd RWMutex", func(a *lockquake.Access) (*user, error) {
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

// Acquire gives up when its time is over, because the library's Lock takes no context.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	if err := u.open(); err != nil {
		u.session = nil
		return lockquake.Grant{}, err
	}
	sent := lockquake.Now()
	m := recipe.NewRWMutex(u.session, "lockquake/"+name)
	if err := lockquake.Within(ctx, m.Lock, m.Unlock); err != nil {
		return lockquake.Grant{}, err
	}
	key := reflect.ValueOf(m).Elem().FieldByName("myKey").Elem().FieldByName("RemoteKV")
	g := lockquake.Grant{
		ID: key.FieldByName("key").String(), Token: uint64(key.FieldByName("rev").Int()), Sent: sent,
		Valid: lockquake.Unknown, Handle: m,
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
	return u.access.Valid(sent), err
}

func (u *user) Release(_ context.Context, g lockquake.Grant) error {
	return g.Handle.(*recipe.RWMutex).Unlock()
}
