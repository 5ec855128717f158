// Command pglock is cirello.io/pglock on PostgreSQL. The library sends the heartbeats of its locks by itself.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"cirello.io/pglock"
	_ "github.com/lib/pq"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

type user struct {
	access *lockquake.Access
	locks  *pglock.Client
}

// handle is a lock, and which heartbeat it was at when it was last looked at.
type handle struct {
	*pglock.Lock
	version, looked, valid int64
}

func main() {
	lockquake.Main("pglock", func(a *lockquake.Access) (lockquake.Lock, error) {
		host := strings.Replace(a.Addresses("client")[0], ":", " port=", 1)
		db, err := sql.Open("postgres", fmt.Sprintf("host=%s user=postgres password='%s' sslmode=disable", host, a.Password))
		if err != nil {
			return nil, err
		}
		c, err := pglock.New(db, pglock.WithLeaseDuration(a.TTL()), pglock.WithHeartbeatFrequency(a.TTL()/8))
		if err == nil {
			_ = c.CreateTable() // another user has made it
		}
		return &user{a, c}, err
	})
}

func version(l *pglock.Lock) int64 {
	return reflect.ValueOf(l).Elem().FieldByName("recordVersionNumber").Int()
}

func (u *user) Acquire(ctx context.Context, name string) (lockquake.Grant, error) {
	l, err := u.locks.AcquireContext(ctx, name)
	if err != nil {
		return lockquake.Grant{}, err
	}
	h := &handle{Lock: l, version: version(l), looked: lockquake.Now()}
	h.valid = u.access.Valid(h.looked - u.access.TTLNanoseconds/8) // the answer took no longer
	return lockquake.Grant{ID: strconv.FormatInt(h.version, 10), Sent: h.looked, Valid: h.valid, Handle: h}, nil
}

func (u *user) Release(ctx context.Context, g lockquake.Grant) error {
	return held(u.locks.ReleaseContext(ctx, g.Handle.(*handle).Lock))
}

// Renew looks for a heartbeat since the last look: nobody else gets the lock within a TTL of it.
func (u *user) Renew(_ context.Context, g lockquake.Grant) (int64, error) {
	h := g.Handle.(*handle)
	if h.IsReleased() {
		return 0, lockquake.ErrNotHeld
	}
	if v := version(h.Lock); v != h.version {
		h.version, h.valid = v, u.access.Valid(h.looked)
	}
	h.looked = lockquake.Now()
	return h.valid, nil
}

func held(err error) error {
	if err == pglock.ErrLockAlreadyReleased {
		return lockquake.ErrNotHeld
	}
	return err
}
