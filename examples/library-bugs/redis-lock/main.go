// Command redis-lock runs github.com/bsm/redis-lock, the predecessor of bsm/redislock. Each grant has its own Locker.
package main

import (
	"context"
	"fmt"
	"reflect"
	"time"

	lock "github.com/bsm/redis-lock"
	"github.com/go-redis/redis"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

type user struct {
	access *lockquake.Access
	client *redis.Client
}

func main() {
	lockquake.Main("redis-lock", func(a *lockquake.Access) (*user, error) {
		return &user{a, redis.NewClient(&redis.Options{
			Addr: a.Addresses("client")[0], Password: a.Password,
			ReadTimeout: a.Timeout(),
		})}, nil
	})
}

// Acquire repeats Lock, with one try a call, until the lock is granted.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	l := lock.New(u.client, "lockquake:"+name, &lock.Options{LockTimeout: u.access.TTL()})
	for {
		sent := lockquake.Now()
		ok, err := l.Lock()
		switch {
		case err != nil:
			return lockquake.Grant{}, err
		case ok:
			g := u.access.Grant(reflect.ValueOf(l).Elem().FieldByName("token").String(), sent)
			g.Handle = l
			return g, nil
		}
		select {
		case <-ctx.Done():
			return lockquake.Grant{}, lockquake.ErrContended
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Release trusts the library. Versions before v7 have no error for a lock that was not held.
func (u *user) Release(_ context.Context, g lockquake.Grant) error {
	err := g.Handle.(*lock.Locker).Unlock()
	if err != nil && err.Error() == "lock unlock failed" {
		return fmt.Errorf("%w: %v", lockquake.ErrNotHeld, err)
	}
	return err
}
