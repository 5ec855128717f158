// Command redis-lock is github.com/bsm/redis-lock, whose successor is bsm/redislock. Each grant has a Locker of its
// own.
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

// Acquire asks until it gets the lock, each time by a Lock of one try.
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

// Release believes the library. Until v7 it has no word for a lock that was not held.
func (u *user) Release(_ context.Context, g lockquake.Grant) error {
	err := g.Handle.(*lock.Locker).Unlock()
	if err != nil && err.Error() == "lock unlock failed" {
		return fmt.Errorf("%w: %v", lockquake.ErrNotHeld, err)
	}
	return err
}
