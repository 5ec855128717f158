//go:build broken

package library

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/locktest"
)

// The locks in this file are wrong on purpose: go test -tags broken shows how locktest reports them.

// errTaken says that the lock is taken.
var errTaken = errors.New("taken")

// TestNeverExcludes tests a lock that grants every request.
func TestNeverExcludes(t *testing.T) {
	locktest.Run(t, locktest.Redis(), wrong(func(ctx context.Context, c *redis.Client, r lock.Request) error {
		return c.Set(ctx, r.Lock, rand.Text(), r.TTL).Err()
	}))
}

// TestFreesForeign tests a lock whose release deletes the key and whose renewal extends it, whoever owns it.
func TestFreesForeign(t *testing.T) {
	locktest.Run(t, locktest.Redis(), wrong(func(ctx context.Context, c *redis.Client, r lock.Request) error { return setNX(ctx, c, r, r.TTL) }))
}

// TestNeverExpires tests a lock whose key has no expiry.
func TestNeverExpires(t *testing.T) {
	locktest.Run(t, locktest.Redis(), wrong(func(ctx context.Context, c *redis.Client, r lock.Request) error { return setNX(ctx, c, r, 0) }))
}

// setNX sets the key if it does not exist.
func setNX(ctx context.Context, c *redis.Client, r lock.Request, ttl time.Duration) error {
	err := c.SetArgs(ctx, r.Lock, rand.Text(), redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if errors.Is(err, redis.Nil) {
		return errTaken
	}
	return err
}

// wrong returns a lock that is acquired by obtain, extended by a plain PEXPIRE and released by a plain DEL.
func wrong(obtain func(context.Context, *redis.Client, lock.Request) error) locktest.Connect {
	return func(_ context.Context, endpoints []string) (lock.Locker, error) {
		o, err := redis.ParseURL(endpoints[0])
		if err != nil {
			return nil, err
		}
		o.MaxRetries, o.ContextTimeoutEnabled = -1, true
		c := redis.NewClient(o)
		return locktest.Library[string]{
			Obtain:  func(ctx context.Context, r lock.Request) (string, error) { return r.Lock, obtain(ctx, c, r) },
			Release: func(ctx context.Context, name string) error { return c.Del(ctx, name).Err() },
			Renew: func(ctx context.Context, name string, ttl time.Duration) error {
				return c.PExpire(ctx, name, ttl).Err()
			},
			Close:     c.Close,
			Contended: errTaken,
		}.Locker(), nil
	}
}
