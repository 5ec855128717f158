// Command redislock runs bsm/redislock on one Redis server, in the version it is built with.
package main

import (
	"context"

	"github.com/bsm/redislock"
	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/redis/go-redis/v9"
)

type user struct {
	access *lockquake.Access
	redis  *redis.Client
	// options are nil for the library's defaults. With build tag owner they name the owner of the lock.
	options *redislock.Options
}

func main() { lockquake.Main("redislock", connect) }

func connect(a *lockquake.Access) (*user, error) {
	return &user{a, redis.NewClient(&redis.Options{
		Addr: a.Addresses("client")[0], Username: a.User,
		Password: a.Password, MaxRetries: -1,
	}), options(a)}, nil
}

// Acquire polls, with one request an attempt, until the lock is granted.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	return u.access.Poll(ctx, func() (string, interface{}, error) {
		l, err := redislock.Obtain(ctx, u.redis, "lockquake:"+name, u.access.TTL(), u.options)
		if err == redislock.ErrNotObtained {
			return "", nil, lockquake.ErrContended
		}
		if err != nil {
			return "", nil, err
		}
		return l.Token(), l, nil
	})
}

func (u *user) Release(ctx context.Context, g lockquake.Grant) error {
	return held(g.Handle.(*redislock.Lock).Release(ctx))
}

func (u *user) Renew(ctx context.Context, g lockquake.Grant) (int64, error) {
	sent := lockquake.Now()
	return u.access.Valid(sent), held(g.Handle.(*redislock.Lock).Refresh(ctx, u.access.TTL(), nil))
}

// held maps the library's answers that the grant is gone to lockquake's errors.
func held(err error) error {
	if err == redislock.ErrLockNotHeld || err == redislock.ErrNotObtained {
		return lockquake.ErrNotHeld
	}
	return err
}
