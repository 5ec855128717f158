package locks

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// rueidisRefresh is how often a client asks the Sentinels for the primary, besides their notifications, as the
// library recommends.
const rueidisRefresh = 5 * time.Second

// rueidisConnection is one client process's Locker of the library.
type rueidisConnection struct {
	access  backends.Access
	params  access.LockParams
	library rueidislock.Locker

	mu      sync.Mutex
	byValue map[string]*rueidisGrant // of keys that may exist
}

func dialRueidis(_ context.Context, a backends.Access) (backends.Connection, error) {
	o, p, err := rueidisOptions(a)
	if err != nil {
		return nil, err
	}
	c := &rueidisConnection{access: a, params: p, byValue: map[string]*rueidisGrant{}}
	c.library, err = rueidislock.NewLocker(rueidislock.LockerOption{
		ClientBuilder: func(o rueidis.ClientOption) (rueidis.Client, error) {
			inner, err := rueidis.NewClient(o)
			if err != nil {
				return nil, err
			}
			return rueidisHook{Client: inner, conn: c}, nil
		},
		ClientOption:   o,
		KeyPrefix:      access.Keyspace(a.Prefix).RueidisPrefix(),
		KeyValidity:    a.TTL,
		KeyMajority:    1,
		TryNextAfter:   p.Timeout,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, fmt.Errorf("rueidislock: %w", err)
	}
	return c, nil
}

// rueidisOptions returns the options of a client as a user's program would set them for the topology; see connect.
func rueidisOptions(a backends.Access) (rueidis.ClientOption, access.LockParams, error) {
	p, err := access.DecodeLock(a.Params)
	if err != nil {
		return rueidis.ClientOption{}, p, err
	}
	o := rueidis.ClientOption{
		Dialer:           net.Dialer{Timeout: p.Timeout},
		ConnWriteTimeout: p.Timeout,
		DisableRetry:     true,
		Username:         a.User,
		Password:         a.Password,
		DialCtxFn: func(ctx context.Context, address string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			to := address
			if other, ok := a.Via[address]; ok {
				to = other
			}
			conn, err := d.DialContext(ctx, "tcp", to)
			if err == nil {
				conn, err = a.TLS.Over(ctx, conn, address)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
			}
			return conn, nil
		},
		ClusterOption: rueidis.ClusterOption{MaxMovedRedirections: access.Redirects},
	}
	switch a.Backend {
	case access.Single:
		o.InitAddress, o.ForceSingleClient = a.Addresses(access.Port), true
	case access.Sentinel:
		o.InitAddress = a.Addresses(access.SentinelPort)
		watch := a.LoginAt(access.SentinelPort)
		o.Sentinel = rueidis.SentinelOption{
			MasterSet: cmp.Or(p.Master, access.Monitored), Username: watch.User, Password: watch.Password,
			Dialer: o.Dialer, TopologyRefreshInterval: rueidisRefresh,
		}
	case access.Cluster:
		o.InitAddress = a.Addresses(access.Port)
	default:
		return o, p, fmt.Errorf("rueidislock: backend %q is none of %s, %s and %s", a.Backend, access.Single,
			access.Sentinel, access.Cluster)
	}
	if len(o.InitAddress) == 0 {
		return o, p, fmt.Errorf("rueidislock: backend %s has no address", a.Backend)
	}
	return o, p, nil
}

// Locker returns a locker for one user.
func (c *rueidisConnection) Locker(context.Context, int) (lock.Locker, error) {
	return &rueidisUser{conn: c}, nil
}

// Close ends the library's Locker and its connections.
func (c *rueidisConnection) Close() error {
	c.library.Close()
	return nil
}

// rueidisHook sees the commands that the library passes to its client, and their answers.
type rueidisHook struct {
	rueidis.Client
	conn *rueidisConnection
}

// The words of the library's script calls: EVALSHA or EVAL, the script, 1, key, value, time.
const (
	rueidisWords    = 6
	rueidisValue    = 4
	rueidisDeadline = 5
)

// Do informs the grant of the command. The library has three commands: SET and the renewals run under the context of
// the grant, the delete under none.
func (h rueidisHook) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if len(words) != rueidisWords {
		return h.Client.Do(ctx, cmd)
	}
	value, deadline := words[rueidisValue], words[rueidisDeadline]
	a, ok := ctx.Value(rueidisGrantKey{}).(*rueidisGrant)
	if !ok {
		resp := h.Client.Do(ctx, cmd)
		if a := h.conn.grantOf(value); a != nil && a.deleted(resp) {
			h.conn.forget(value)
		}
		return resp
	}
	ms, err := strconv.ParseInt(deadline, 10, 64)
	if err != nil {
		return h.Client.Do(ctx, cmd)
	}
	h.conn.remember(value, a)
	now := time.Now()
	p := rueidisPromise{sent: now, until: now.Add(time.UnixMilli(ms).Sub(now.Round(0))), clock: ms}
	a.asks(value)
	resp := h.Client.Do(ctx, cmd)
	if a.answered(p, resp) {
		h.conn.forget(value)
	}
	return resp
}

func (c *rueidisConnection) grantOf(value string) *rueidisGrant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byValue[value]
}

func (c *rueidisConnection) remember(value string, a *rueidisGrant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byValue[value] = a
}

func (c *rueidisConnection) forget(value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byValue, value)
}
