// Command redislock is github.com/bsm/redislock with its exponential backoff, as its README has it.
package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/redis/go-redis/v9"
)

type user struct {
	access *lockquake.Access
	locks  *redislock.Client
}

func main() {
	lockquake.Main("redislock", func(a *lockquake.Access) (lockquake.Lock, error) {
		return &user{a, redislock.New(redis.NewClient(&redis.Options{
			Addr: a.Addresses("client")[0], Password: a.Password, MaxRetries: -1, ReadTimeout: a.Timeout(), ContextTimeoutEnabled: true,
		}))}, nil
	})
}

// sent is the time before the latest request: that which was granted is the last of a call.
type sent struct {
	redislock.RetryStrategy
	at int64
}

// NextBackoff is asked after each refusal.
func (s *sent) NextBackoff() time.Duration {
	wait := s.RetryStrategy.NextBackoff()
	s.at = lockquake.Now() // the next request is not sent before
	return wait
}

func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	s := &sent{redislock.ExponentialBackoff(0, time.Second), lockquake.Now()}
	l, err := u.locks.Obtain(ctx, "lockquake:"+name, u.access.TTL(), &redislock.Options{RetryStrategy: s})
	if errors.Is(err, redislock.ErrNotObtained) {
		return lockquake.Grant{}, lockquake.ErrContended
	} else if err != nil {
		return lockquake.Grant{}, err
	}
	g := u.access.Grant(l.Token(), s.at)
	g.Handle = l
	return g, nil
}

func (u *user) Release(ctx context.Context, g lockquake.Grant) error {
	return held(g.Handle.(*redislock.Lock).Release(ctx))
}

func (u *user) Renew(ctx context.Context, g lockquake.Grant) (int64, error) {
	now := lockquake.Now()
	return u.access.Valid(now), held(g.Handle.(*redislock.Lock).Refresh(ctx, u.access.TTL(), nil))
}

// held is what the library's answer means.
func held(err error) error {
	if errors.Is(err, redislock.ErrLockNotHeld) || errors.Is(err, redislock.ErrNotObtained) {
		return lockquake.ErrNotHeld
	}
	return err
}
