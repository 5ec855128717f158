// Package library tests the library github.com/bsm/redislock as its author would: go test, with lockquake on PATH.
package library

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m) }

func TestRedislock(t *testing.T) {
	locktest.Run(t, locktest.Redis(), func(_ context.Context, endpoints []string) (lock.Locker, error) {
		o, err := redis.ParseURL(endpoints[0])
		if err != nil {
			return nil, err
		}
		o.MaxRetries, o.ContextTimeoutEnabled = -1, true
		c := redis.NewClient(o)
		return locktest.Library[*redislock.Lock]{
			Obtain: func(ctx context.Context, r lock.Request) (*redislock.Lock, error) {
				return redislock.Obtain(ctx, c, r.Lock, r.TTL, nil)
			},
			Release:   func(ctx context.Context, l *redislock.Lock) error { return l.Release(ctx) },
			Renew:     func(ctx context.Context, l *redislock.Lock, ttl time.Duration) error { return l.Refresh(ctx, ttl, nil) },
			Close:     c.Close,
			Contended: redislock.ErrNotObtained, NotHeld: redislock.ErrLockNotHeld,
		}.Locker(), nil
	})
}
