// Command redsync is redsync v4 on one Redis server, or on several: of the version that it is built with.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

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

func main() {
	lockquake.Main("redsync", connect, "before-lock", "lock-done", "before-unlock", "unlock-done")
}

func connect(a *lockquake.Access) (*user, error) {
	var pools []redis.Pool
	for _, address := range a.Addresses("client") {
		address := address
		pools = append(pools, adapter.NewPool(&redigo.Pool{MaxIdle: 2, Dial: func() (redigo.Conn, error) {
			return redigo.Dial("tcp", address, redigo.DialConnectTimeout(a.Timeout()), redigo.DialReadTimeout(a.Timeout()),
				redigo.DialWriteTimeout(a.Timeout()), redigo.DialPassword(a.Password))
		}}))
	}
	return &user{a, redsync.New(pools...)}, nil
}

// Acquire asks until it gets the lock. Each question is a Lock of one try, whose send time is known.
func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it cannot fail
	value := hex.EncodeToString(id)
	m := u.library.NewMutex("lockquake:"+name, redsync.WithExpiry(u.access.TTL()), redsync.WithTries(1),
		redsync.WithGenValueFunc(func() (string, error) { return value, nil }))
	for {
		lockquake.At(ctx, "before-lock")
		sent := lockquake.Now()
		err := m.LockContext(ctx)
		if err == nil {
			lockquake.At(ctx, "lock-done")
			g := u.access.Grant(value, sent)
			g.Handle = m
			return g, nil
		}
		if err != redsync.ErrFailed && !strings.Contains(err.Error(), "already taken") {
			return lockquake.Grant{}, err
		}
		select {
		case <-ctx.Done():
			return lockquake.Grant{}, lockquake.ErrContended
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Release gives it back.
func (u *user) Release(ctx context.Context, g lockquake.Grant) error {
	lockquake.At(ctx, "before-unlock")
	err := held(g.Handle.(*redsync.Mutex).UnlockContext(ctx))
	lockquake.At(ctx, "unlock-done")
	return err
}

// Renew extends the grant.
func (u *user) Renew(ctx context.Context, g lockquake.Grant) (int64, error) {
	sent := lockquake.Now()
	return u.access.Valid(sent), held(g.Handle.(*redsync.Mutex).ExtendContext(ctx))
}

// held is what the library's answer means, in the words of all its versions.
func held(ok bool, err error) error {
	if !ok && (err == nil || strings.Contains(err.Error(), "already")) {
		return lockquake.ErrNotHeld
	}
	return err
}
