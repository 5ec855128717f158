// Command gozero runs the RedisLock of go-zero. Each user has one object per lock and reuses it.
package main

import (
	"context"
	"reflect"
	"time"

	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/zeromicro/go-zero/core/stores/redis"
)

type user struct {
	access *lockquake.Access
	store  *redis.Redis
	locks  map[string]*redis.RedisLock
}

func main() {
	lockquake.Main("go-zero RedisLock", func(a *lockquake.Access) (*user, error) {
		return &user{a, redis.New(a.Addresses("client")[0], redis.WithPass(a.Password)), map[string]*redis.RedisLock{}},
			nil
	})
}

func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	l := u.locks[name]
	if l == nil {
		l = redis.NewRedisLock(u.store, "lockquake:"+name)
		l.SetExpire(int(u.access.TTL() / time.Second))
		u.locks[name] = l
	}
	for {
		sent := lockquake.Now()
		ok, err := l.Acquire()
		if ok {
			g := u.access.Grant(reflect.ValueOf(l).Elem().FieldByName("id").String(), sent)
			g.Handle = l
			return g, nil
		}
		if err != nil {
			return lockquake.Grant{}, err
		}
		select {
		case <-ctx.Done():
			return lockquake.Grant{}, lockquake.ErrContended
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (u *user) Release(_ context.Context, g lockquake.Grant) error {
	ok, err := g.Handle.(*redis.RedisLock).Release()
	if err == nil && !ok {
		return lockquake.ErrNotHeld
	}
	return err
}
