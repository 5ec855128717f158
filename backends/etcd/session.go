package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// connection is the client of one client process: one gRPC connection to each member, shared by all users.
type connection struct {
	access backends.Access
	params LockParams
	client *clientv3.Client
	leases *leases
	wakes  *wakes
	locker func(*user) lock.Locker

	sharing sync.Mutex
	shared  *session // of all users, if they share one
}

// reconnect sets how a client comes back to a member. gRPC's own back-off grows to two minutes, which after a long
// outage would make the lock look stuck.
var reconnect = grpc.ConnectParams{
	Backoff: backoff.Config{
		BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
		MaxDelay: time.Second,
	},
	MinConnectTimeout: 2 * time.Second,
}

// dialer returns a lock's Dial; locker makes a user's locker.
func dialer(locker func(*user) lock.Locker) func(context.Context, backends.Access) (backends.Connection, error) {
	return func(ctx context.Context, a backends.Access) (backends.Connection, error) {
		c, err := dial(ctx, a)
		if err != nil {
			return nil, err
		}
		c.locker = locker
		return c, nil
	}
}

func dial(ctx context.Context, a backends.Access) (*connection, error) {
	p, err := lockParams(a.Params)
	if err != nil {
		return nil, err
	}
	endpoints := a.Addresses(Port)
	if len(endpoints) == 0 {
		return nil, fmt.Errorf("etcd: no address of port %q", Port)
	}
	if p.Pinned {
		own := a.Client % len(endpoints)
		endpoints = endpoints[own : own+1]
	}
	ls, ws := newLeases(), &wakes{}
	secure, err := a.TLS.Config("") // the library knows which host it dials
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	c, err := clientv3.New(clientv3.Config{
		Context:   context.WithoutCancel(ctx),
		Endpoints: endpoints,
		Username:  a.User,
		Password:  a.Password,
		TLS:       secure,
		// The library derives its first keep-alive deadline from it: this plus one second.
		DialTimeout:          p.Timeout,
		DialKeepAliveTime:    10 * time.Second, // gRPC's own minimum
		DialKeepAliveTimeout: p.Timeout,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{
			// Chained interceptors run within the library's own, so they see each attempt.
			grpc.WithChainUnaryInterceptor(ls.unary),
			grpc.WithChainStreamInterceptor(ls.stream, ws.stream),
			grpc.WithConnectParams(reconnect),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("etcd client: %w", err)
	}
	return &connection{access: a, params: p, client: c, leases: ls, wakes: ws}, nil
}

// Locker opens a session for one user, because a Mutex is re-entrant within a session. If users share one, they get
// that.
func (c *connection) Locker(ctx context.Context, _ int) (lock.Locker, error) {
	u := &user{conn: c, held: map[string]*held{}}
	if _, err := u.live(ctx); err != nil {
		return nil, err
	}
	return c.locker(u), nil
}

// keys returns where the locks are kept.
func (c *connection) keys() keyspace { return keyspace(c.access.Prefix) }

// Notifications returns how many watch events the users of this process received: how often they were woken. If the
// lock waits in the server (v3lock), no user watches.
func (c *connection) Notifications() int64 { return c.wakes.count.Load() }

// next returns a session for a user that has none: its own, or the one that all users of the process share.
func (c *connection) next(ctx context.Context) (*session, error) {
	if !c.params.SharedSession {
		return c.open(ctx)
	}
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if c.shared != nil && c.shared.usable() {
		return c.shared, nil
	}
	s, err := c.open(ctx)
	c.shared = s
	return s, err
}

// Close ends the client and the shared session; other remaining leases expire.
func (c *connection) Close() error {
	var err error
	if c.shared != nil {
		err = c.shared.end(context.WithoutCancel(c.client.Ctx()))
	}
	return errors.Join(err, c.client.Close())
}

// session is one user's lease and its keep-alive.
type session struct {
	conn   *connection
	lease  clientv3.LeaseID
	inner  *concurrency.Session
	cancel context.CancelFunc
}

// open grants a lease and starts its keep-alive.
func (c *connection) open(ctx context.Context) (*session, error) {
	bounded, done := context.WithTimeout(ctx, c.params.Timeout)
	defer done()
	granted, err := c.client.Grant(bounded, int64(c.access.TTL/time.Second))
	if err != nil {
		return nil, fmt.Errorf("lease grant: %w", err)
	}
	life, cancel := context.WithCancel(c.client.Ctx())
	// Its own client on the shared connection gives the session a context that ends with it. The library cleans up
	// with the client's context, and would otherwise go on for as long as the process lives.
	own := clientv3.NewCtxClient(life, clientv3.WithZapLogger(zap.NewNop()))
	own.KV = c.kv()
	own.Lease = c.client.Lease
	own.Watcher = c.client.Watcher
	inner, err := concurrency.NewSession(own, concurrency.WithLease(granted.ID), concurrency.WithContext(life))
	if err != nil {
		cancel()
		c.leases.forget(int64(granted.ID)) // it expires by itself
		return nil, fmt.Errorf("keep-alive: %w", err)
	}
	return &session{conn: c, lease: granted.ID, inner: inner, cancel: cancel}, nil
}

// validity returns the validity of the lease.
func (s *session) validity() (lock.Validity, <-chan struct{}) {
	return s.conn.leases.validity(int64(s.lease))
}

// usable reports whether a grant under this session could be believed in.
func (s *session) usable() bool {
	select {
	case <-s.inner.Done():
		return false
	default:
	}
	v, _ := s.validity()
	return v.Covers(time.Now())
}

// end first stops the keep-alive, so that everything under the lease ends even if the service hears nothing, and then
// revokes the lease.
func (s *session) end(ctx context.Context) error {
	s.inner.Orphan()
	defer s.cancel()
	defer s.conn.leases.forget(int64(s.lease))
	bounded, done := context.WithTimeout(ctx, s.conn.params.Timeout)
	defer done()
	if _, err := s.conn.client.Revoke(bounded, s.lease); err != nil {
		return fmt.Errorf("lease revoke: %w", err)
	}
	return nil
}

// boundedKV gives each call a deadline.
type boundedKV struct {
	clientv3.KV
	timeout time.Duration
}

// Get is bounded.
func (b boundedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, done := context.WithTimeout(ctx, b.timeout)
	defer done()
	return b.KV.Get(ctx, key, opts...)
}

// Delete is bounded.
func (b boundedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse,
	error,
) {
	ctx, done := context.WithTimeout(ctx, b.timeout)
	defer done()
	return b.KV.Delete(ctx, key, opts...)
}

// Txn is bounded from its creation; the library commits it at once.
func (b boundedKV) Txn(ctx context.Context) clientv3.Txn {
	ctx, done := context.WithTimeout(ctx, b.timeout)
	return &boundedTxn{Txn: b.KV.Txn(ctx), done: done}
}

type boundedTxn struct {
	clientv3.Txn
	done context.CancelFunc
}

// If keeps the wrapper around the transaction.
func (t *boundedTxn) If(cs ...clientv3.Cmp) clientv3.Txn { t.Txn = t.Txn.If(cs...); return t }

// Then keeps the wrapper around the transaction.
func (t *boundedTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(ops...); return t }

// Else keeps the wrapper around the transaction.
func (t *boundedTxn) Else(ops ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(ops...); return t }

// Commit frees the deadline's timer.
func (t *boundedTxn) Commit() (*clientv3.TxnResponse, error) {
	defer t.done()
	return t.Txn.Commit()
}
