// Command redsync runs redsync v4 with go-redis, on one Redis server or several, as its README shows. Lock retries by
// itself, and each try takes at most 5 % of the expiry.
package main

import (
	"context"
	"math/rand"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis/v8"
	"github.com/go-redsync/redsync/v4"
	library "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v8"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

type user struct {
	access  *lockquake.Access
	library *redsync.Redsync
	sent    int64 // before the first SET of the latest try, which is the one that may be granted
}

func main() {
	lockquake.Main("redsync", func(a *lockquake.Access) (*user, error) {
		u := &user{access: a}
		var pools []library.Pool
		for _, address := range a.Addresses("client") {
			c := redis.NewClient(&redis.Options{
				Addr: address, Password: a.Password, MaxRetries: -1, MinIdleConns: 2,
				ReadTimeout: a.Timeout(),
			})
			c.AddHook(u)
			pools = append(pools, goredis.NewPool(c))
		}
		u.library = redsync.New(pools...)
		return u, nil
	})
}

func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	again := redsync.WithRetryDelayFunc(func(int) time.Duration { // the default delay
		atomic.StoreInt64(&u.sent, 0)
		return time.Duration(50+rand.Intn(200)) * time.Millisecond
	})
	m := u.library.NewMutex("lockquake:"+name, redsync.WithExpiry(u.access.TTL()), again)
	for {
		atomic.StoreInt64(&u.sent, 0)
		switch err := m.LockContext(ctx); {
		case err == nil:
			g := u.access.Grant(m.Value(), atomic.LoadInt64(&u.sent))
			g.Handle = m
			return g, nil
		case ctx.Err() != nil || !strings.Contains(err.Error(), "already taken") && err != redsync.ErrFailed:
			return lockquake.Grant{}, err
		}
	}
}

func (u *user) Release(_ context.Context, g lockquake.Grant) error {
	return held(g.Handle.(*redsync.Mutex).Unlock())
}

func (u *user) Renew(_ context.Context, g lockquake.Grant) (int64, error) {
	now := lockquake.Now()
	return u.access.Valid(now), held(g.Handle.(*redsync.Mutex).Extend())
}

// held maps the answers of all v4 versions to lockquake's errors.
func held(ok bool, err error) error {
	if !ok && (err == nil || strings.Contains(err.Error(), "already")) {
		return lockquake.ErrNotHeld
	}
	return err
}

// BeforeProcess records when a try begins. This method and those below implement a hook of the client.
func (u *user) BeforeProcess(ctx context.Context, c redis.Cmder) (context.Context, error) {
	if c.Name() == "set" || c.Name() == "setnx" {
		atomic.CompareAndSwapInt64(&u.sent, 0, lockquake.Now())
	}
	return ctx, nil
}
func (u *user) AfterProcess(context.Context, redis.Cmder) error { return nil }
func (u *user) BeforeProcessPipeline(ctx context.Context, _ []redis.Cmder) (context.Context, error) {
	return ctx, nil
}
func (u *user) AfterProcessPipeline(context.Context, []redis.Cmder) error { return nil }
