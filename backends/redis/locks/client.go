package locks

import (
	"cmp"
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// connect returns a client as a user's program would make it for the topology that a.Backend names. One server is
// reached by its address, Sentinel by asking the Sentinels for the primary, Redis Cluster by its slot map. It
// connects with the first command.
func connect(a backends.Access, p access.LockParams) (redis.UniversalClient, error) {
	o := access.Options(p.Timeout, a.Login)
	o.Dialer = access.Detour(a.Via, p.Timeout, a.TLS)
	switch a.Backend {
	case access.Single:
		o.Addrs = a.Addresses(access.Port)
		if len(o.Addrs) != 1 {
			return nil, fmt.Errorf("redis: %d addresses of port %q; one is needed", len(o.Addrs), access.Port)
		}
		return redis.NewClient(o.Simple()), nil
	case access.Sentinel:
		o.Addrs, o.MasterName = a.Addresses(access.SentinelPort), cmp.Or(p.Master, access.Monitored)
		watch := a.LoginAt(access.SentinelPort)
		o.SentinelUsername, o.SentinelPassword = watch.User, watch.Password
		if len(o.Addrs) == 0 {
			return nil, fmt.Errorf("redis: no address of port %q; the Sentinels' are needed", access.SentinelPort)
		}
		// A hanging Sentinel is asked twice, and a third time together with the others. If the connect timed out
		// before that, go-redis would never get to the others.
		o.DialTimeout = 4 * p.Timeout
		return redis.NewFailoverClient(o.Failover()), nil
	case access.Cluster:
		o.Addrs = a.Addresses(access.Port)
		if len(o.Addrs) == 0 {
			return nil, fmt.Errorf("redis: no address of port %q", access.Port)
		}
		return access.NewClusterClient(o), nil
	}
	return nil, fmt.Errorf("redis: backend %q is none of %s, %s and %s", a.Backend, access.Single, access.Sentinel,
		access.Cluster)
}

// connection is one client process's connection pool, which all of its users share: owner values are random for each
// grant.
type connection struct {
	access backends.Access
	params access.LockParams
	client redis.UniversalClient
	locker func(user) lock.Locker
}

// dialer returns the Dial of a lock; locker makes a user's locker.
func dialer(locker func(user) lock.Locker) func(context.Context, backends.Access) (backends.Connection, error) {
	return func(_ context.Context, a backends.Access) (backends.Connection, error) {
		p, err := access.DecodeLock(a.Params)
		if err != nil {
			return nil, err
		}
		client, err := connect(a, p)
		if err != nil {
			return nil, err
		}
		client.AddHook(sendHook{})
		return &connection{access: a, params: p, client: client, locker: locker}, nil
	}
}

// Locker returns a locker for one user.
func (c *connection) Locker(_ context.Context, number int) (lock.Locker, error) {
	return c.locker(user{
		client: c.client, keys: access.Keyspace(c.access.Prefix), params: c.params,
		random: backends.Random(c.access.Run, number), process: c.access.Client,
	}), nil
}

// Close closes the connections. Keys that are still held expire if they have an expiry.
func (c *connection) Close() error { return c.client.Close() }

// user is the common part of one user's lockers.
type user struct {
	client  redis.UniversalClient
	keys    access.Keyspace
	params  access.LockParams
	random  *mathrand.Rand
	process int // number of the client process
}

// poll tries until the lock is granted.
func (u user) poll(ctx context.Context, r lock.Request,
	try func(context.Context, lock.Request) (lock.Grant, error),
) (lock.Grant, error) {
	return u.params.Retry.Poll(ctx, u.random, func(ctx context.Context) (lock.Grant, error) { return try(ctx, r) })
}

// expiring sets what all locks have in common whose keys expire by the servers' wall clocks.
func expiring(l backends.Lock) backends.Lock {
	l.Offers.Try, l.Offers.Reentrant, l.Offers.Expires, l.Offers.WallClock = true, "no", true, true
	l.Offers.Token = cmp.Or(l.Offers.Token, backends.TokenNone)
	l.MinTTL, l.Recovery = 10*time.Millisecond, backends.RecoversIn(recovery)
	return l
}

// recovery returns when a dead holder's key is gone: Redis checks a key's expiry whenever it is accessed.
func recovery(ttl time.Duration) time.Duration { return ttl + time.Second }
