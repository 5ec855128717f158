// Command redsync runs redsync v4 on one Redis server or several, in the version it is built with. Each request is one
// try. With build tag nocontext it uses the calls without a context.
package main

import (
	"context"
	"strings"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	adapter "github.com/go-redsync/redsync/v4/redis/redigo"
	redigo "github.com/gomodule/redigo/redis"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

type user struct {
	access  *lockquake.Access
	library *redsync.Redsync
}

func main() { lockquake.Main("redsync", connect) }

func connect(a *lockquake.Access) (*user, error) {
	var pools []redis.Pool
	for _, address := range a.Addresses("client") {
		at, read := address, redigo.DialReadTimeout(a.Timeout())
		pools = append(pools, adapter.NewPool(&redigo.Pool{MaxIdle: 2, Dial: func() (redigo.Conn, error) {
			return redigo.Dial("tcp", at, redigo.DialPassword(a.Password), redigo.DialConnectTimeout(a.Timeout()), read)
		}}))
	}
	return &user{a, redsync.New(pools...)}, nil
}

func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	id := lockquake.NewID()
	value := redsync.WithGenValueFunc(func() (string, error) { return id, nil })
	m := u.library.NewMutex("lockquake:"+name, redsync.WithExpiry(u.access.TTL()), redsync.WithTries(1), value)
	return u.access.Poll(ctx, func() (string, interface{}, error) {
		err := lock(ctx, m)
		return id, m, answer(err == nil, err, lockquake.ErrContended)
	})
}

func (u *user) Release(ctx context.Context, g lockquake.Grant) error {
	ok, err := unlock(ctx, g.Handle.(*redsync.Mutex))
	return answer(ok, err, lockquake.ErrNotHeld)
}

func (u *user) ReleaseUnheld(ctx context.Context, name string, last *lockquake.Grant) error {
	if last != nil {
		return u.Release(ctx, *last)
	}
	ok, err := u.library.NewMutex("lockquake:" + name).UnlockContext(ctx)
	return answer(ok, err, lockquake.ErrNotHeld)
}

func (u *user) Renew(ctx context.Context, g lockquake.Grant) (int64, error) {
	sent := lockquake.Now()
	ok, err := extend(ctx, g.Handle.(*redsync.Mutex))
	return u.access.Valid(sent), answer(ok, err, lockquake.ErrNotHeld)
}

// answer maps a yes, a no or an error of any v4 version to lockquake's errors.
func answer(yes bool, err, no error) error {
	if !yes && (err == nil || err == redsync.ErrFailed || strings.Contains(err.Error(), "already")) {
		return no
	}
	return err
}
