package locks

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// rueidisSetPxLua is the recipe of set-px-lua over the library rueidis. The library sends the commands of all users
// of a process over one shared connection, as many at a time as there are (automatic pipelining). A command costs
// client and server less than with a connection per user, but a connection that hangs delays all users.
//
// The library does not report when it writes a command. So a grant is valid from when the command was passed to the
// library, which is earlier: the holder believes in it for less time than it could.
func rueidisSetPxLua() backends.Lock {
	return expiring(backends.Lock{
		Name:    "rueidis-set-px-lua",
		Doc:     "The same recipe as set-px-lua over the library github.com/redis/rueidis, whose users share one connection (automatic pipelining).",
		Modules: []string{"github.com/redis/rueidis"},
		Offers:  backends.Offers{Renewal: "call"},
		Points:  []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: func(_ context.Context, a backends.Access) (backends.Connection, error) {
			o, p, err := rueidisOptions(a)
			if err != nil {
				return nil, err
			}
			o.DisableCache = true // no user waits for changes of a key
			// one connection: the more commands share a write, the less each costs
			o.PipelineMultiplex = -1
			// as the library recommends; it waits only while several commands are pending
			o.MaxFlushDelay = 20 * time.Microsecond
			client, err := rueidis.NewClient(o)
			if err != nil {
				return nil, fmt.Errorf("rueidis: %w", err)
			}
			return pipelined{access: a, params: p, client: client}, nil
		},
	})
}

var (
	rueidisDeleteOwn = rueidis.NewLuaScript(deleteOwnText)
	rueidisExtendOwn = rueidis.NewLuaScript(extendOwnText)
)

// pipelined is one client process's connections.
type pipelined struct {
	access backends.Access
	params access.LockParams
	client rueidis.Client
}

// Locker returns a locker for one user.
func (c pipelined) Locker(_ context.Context, number int) (lock.Locker, error) {
	return &pipelinedUser{user: user{
		keys: access.Keyspace(c.access.Prefix), params: c.params,
		random: backends.Random(c.access.Run, number),
	}, client: c.client}, nil
}

// Close closes the connections; keys that are still held expire.
func (c pipelined) Close() error {
	c.client.Close()
	return nil
}

// pipelinedUser is one user.
type pipelinedUser struct {
	user
	held[struct{}]
	client   rueidis.Client
	commands clock.Timeouts
}

// Acquire polls until the key is free.
func (l *pipelinedUser) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.TryAcquire)
}

// TryAcquire makes one attempt.
func (l *pipelinedUser) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	id := newOwner().id
	lock.At(ctx, "before-set")
	cmd := l.client.B().Set().Key(l.keys.Key(r.Lock)).Value(id).Nx().PxMilliseconds(r.TTL.Milliseconds()).Build()
	sent, err := l.do(ctx, func(ctx context.Context) error { return l.client.Do(ctx, cmd).Error() })
	switch {
	case rueidis.IsRedisNil(err):
		return lock.Grant{}, contended(r)
	case err != nil:
		return lock.Grant{}, fmt.Errorf("SET NX: %w", err)
	}
	lock.At(ctx, "set-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: id, Issued: sent,
		ValidUntil: backends.Validity(sent, r.TTL),
	}
	l.keep(g, struct{}{})
	return g, nil
}

// Release deletes the key if it still has this grant's value.
func (l *pipelinedUser) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	if _, err := l.run(ctx, rueidisDeleteOwn, g); err != nil {
		return fmt.Errorf("delete by script: %w", err)
	}
	lock.At(ctx, "release-done")
	return nil
}

// Renew sets a new expiry if the key still has this grant's value.
func (l *pipelinedUser) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	sent, err := l.run(ctx, rueidisExtendOwn, g, strconv.FormatInt(ttl.Milliseconds(), 10))
	if err != nil {
		return g, fmt.Errorf("extend by script: %w", err)
	}
	g.ValidUntil = backends.Validity(sent, ttl)
	l.keep(g, struct{}{})
	return g, nil
}

// Check reads the key.
func (l *pipelinedUser) Check(ctx context.Context, g lock.Grant) error {
	var v string
	_, err := l.do(ctx, func(ctx context.Context) (err error) {
		v, err = l.client.Do(ctx, l.client.B().Get().Key(l.keys.Key(g.Lock)).Build()).ToString()
		return err
	})
	if err != nil && !rueidis.IsRedisNil(err) {
		return fmt.Errorf("GET: %w", err)
	}
	if err != nil || v != g.ID {
		return notHeld(g)
	}
	return nil
}

// Close frees what the user may still hold.
func (l *pipelinedUser) Close() error { return l.free(l.params.Timeout, l.Release) }

// run runs a script that returns 0 if the key has another value or none. Then the grant is over, as it is after a
// delete.
func (l *pipelinedUser) run(ctx context.Context, script *rueidis.Lua, g lock.Grant, more ...string) (sent time.Time,
	err error,
) {
	var n int64
	sent, err = l.do(ctx, func(ctx context.Context) (err error) {
		n, err = script.Exec(ctx, l.client, []string{l.keys.Key(g.Lock)}, append([]string{g.ID}, more...)).AsInt64()
		return err
	})
	if err != nil {
		return sent, err
	}
	if n == 0 || script == rueidisDeleteOwn {
		l.drop(g)
	}
	if n == 0 {
		return sent, notHeld(g)
	}
	return sent, nil
}

// do passes a command to the library, with a timeout. It returns when that was, and classifies the error: certainly
// not done if the server answered with an error, or if no connection could be made (see rueidisOptions).
func (l *pipelinedUser) do(ctx context.Context, command func(context.Context) error) (handed time.Time, err error) {
	limited := l.commands.Within(ctx, l.params.Timeout)
	defer limited.End()
	handed = time.Now()
	err = command(limited)
	if answer, ok := rueidis.IsRedisErr(err); ok && !answer.IsNil() {
		err = fmt.Errorf("%w: %w", lock.ErrRefused, err)
	}
	return handed, err
}
