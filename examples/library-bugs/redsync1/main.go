// Command redsync1 runs redsync v1 with redigo, on one Redis server.
package main

import (
	"context"
	"math/rand"
	"strconv"
	"time"

	"github.com/go-redsync/redsync"
	"github.com/gomodule/redigo/redis"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

type user struct {
	access  *lockquake.Access
	library *redsync.Redsync
}

func main() {
	lockquake.Main("redsync v1", func(a *lockquake.Access) (*user, error) {
		pool := &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", a.Addresses("client")[0], redis.DialConnectTimeout(a.Timeout()),
				redis.DialReadTimeout(a.Timeout()),
				redis.DialPassword(a.Password))
		}}
		return &user{a, redsync.New([]redsync.Pool{pool})}, nil
	})
}

// Acquire repeats Lock, with one try a call, until the lock is granted.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	value := ""
	m := u.library.NewMutex("lockquake:"+name, redsync.SetExpiry(u.access.TTL()), redsync.SetTries(1),
		redsync.SetGenValueFunc(func() (string, error) {
			value = strconv.FormatInt(rand.Int63(), 36)
			return value, nil
		}))
	for ctx.Err() == nil {
		sent := lockquake.Now()
		if m.Lock() == nil {
			g := u.access.Grant(value, sent)
			g.Handle = m
			return g, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return lockquake.Grant{}, ctx.Err() // the library does not say whether its last try was refused
}

func (u *user) Release(_ context.Context, g lockquake.Grant) error {
	return held(g.Handle.(*redsync.Mutex).Unlock())
}

func (u *user) Renew(_ context.Context, g lockquake.Grant) (int64, error) {
	now := lockquake.Now()
	return u.access.Valid(now), held(g.Handle.(*redsync.Mutex).Extend())
}

// held maps the library's answer to lockquake's errors. The library also answers false after an error.
func held(ok bool) error {
	if !ok {
		return lockquake.ErrNotHeld
	}
	return nil
}
