package zookeeper

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// connection is one client process. Each of its users has its own session, and so its own TCP connection, unless they
// are to share one. So trouble with one user's session ends no other user's grants.
type connection struct {
	access backends.Access
	params LockParams
	wrap   func(user) lock.Locker
	events atomic.Int64

	sharing sync.Mutex
	shared  *session // of all users, if they share one
}

// dialer returns the Dial of one of this package's locks.
func dialer(wrap func(user) lock.Locker) func(context.Context, backends.Access) (backends.Connection, error) {
	return func(_ context.Context, a backends.Access) (backends.Connection, error) {
		p, err := lockParams(a.Params)
		if err != nil {
			return nil, err
		}
		if len(a.Addresses(Port)) == 0 {
			return nil, fmt.Errorf("zookeeper: no address of port %q", Port)
		}
		return &connection{access: a, params: p, wrap: wrap}, nil
	}
}

// Locker opens a session for one user.
func (c *connection) Locker(ctx context.Context, _ int) (lock.Locker, error) {
	u := user{conn: c, held: map[string]*held{}}
	if _, err := u.live(ctx); err != nil {
		return nil, err
	}
	return c.wrap(u), nil
}

// Notifications returns how many watch events the users of this process received: how often they were woken.
func (c *connection) Notifications() int64 { return c.events.Load() }

// next returns a session for a user that has none: its own, or the one that all users of the process share.
func (c *connection) next(ctx context.Context) (*session, error) {
	if !c.params.SharedSession {
		return open(ctx, c.setting())
	}
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if c.shared != nil && c.shared.usable() {
		return c.shared, nil
	}
	s, err := open(ctx, c.setting())
	c.shared = s
	return s, err
}

// Close ends the shared session; users close their own.
func (c *connection) Close() error {
	if c.shared == nil || c.shared.reason() != nil {
		return nil
	}
	return c.shared.leave()
}

// keys returns where the locks are kept.
func (c *connection) keys() keyspace { return keyspace(c.access.Prefix) }

func (c *connection) setting() setting {
	var d net.Dialer
	return setting{
		servers: c.access.Addresses(Port),
		ask:     c.access.TTL,
		lag:     c.params.Lag,
		timeout: c.params.Timeout,
		login:   c.access.Login,
		dial: func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return c.access.TLS.Over(ctx, conn, address)
		},
		events: func() { c.events.Add(1) },
	}
}

// ask makes one request through the library, which knows no context. It returns when the request is answered, when
// ctx or its own deadline ends, or when the session is over. After a deadline the request may still be in the
// library's queue. Only the session's end makes certain that it will not be carried out.
func ask[T any](ctx context.Context, s *session, request func(*zk.Conn) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, s.set.timeout)
	defer cancel()
	return await(ctx, s, func() (T, error) { return request(s.conn) })
}

// await is ask without a deadline of its own.
func await[T any](ctx context.Context, s *session, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := call()
		done <- answer{v, err}
	}()
	var none T
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-s.over:
		return none, s.reason()
	}
}
