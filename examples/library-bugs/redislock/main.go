// Command redislock runs github.com/bsm/redislock with exponential backoff.
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
	lockquake.Main("redislock", func(a *lockquake.Access) (*user, error) {
		return &user{a, redislock.New(redis.NewClient(&redis.Options{
			Addr: a.Addresses("client")[0], Password: a.Password, MaxRetries: -1, ReadTimeout: a.Timeout(),
			ContextTimeoutEnabled: true,
		}))}, nil
	})
}

// backoff doubles the wait after each refusal, from 0.1 ms up to 250 ms.
type backoff struct {
	wait time.Duration
	sent int64 // before the latest request, which is the one that may be granted
}

// NextBackoff is called after each refusal.
func (b *backoff) NextBackoff() time.Duration {
	b.sent, b.wait = lockquake.Now(), 2*b.wait
	if b.wait > 250*time.Millisecond {
		b.wait = 250 * time.Millisecond
	}
	return b.wait
}

func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	b := &backoff{50 * time.Microsecond, lockquake.Now()}
	l, err := u.locks.Obtain(ctx, "lockquake:"+name, u.access.TTL(), &redislock.Options{RetryStrategy: b})
	if errors.Is(err, redislock.ErrNotObtained) {
		return lockquake.Grant{}, lockquake.ErrContended
	} else if err != nil {
		return lockquake.Grant{}, err
	}
	g := u.access.Grant(l.Token(), b.sent)
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

// held maps the library's answer to lockquake's errors.
func held(err error) error {
	if errors.Is(err, redislock.ErrLockNotHeld) || errors.Is(err, redislock.ErrNotObtained) {
		return lockquake.ErrNotHeld
	}
	return err
}
