package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// The backends that connect knows beside the single server.
const (
	nameSentinel = "sentinel"
	nameCluster  = "rediscluster"
)

// sentinelPort is the name of a Sentinel's port, monitored the name under which the Sentinels know the primary and its replicas.
const (
	sentinelPort = "sentinel"
	monitored    = "lockquake"
)

// poolSize bounds the connections of one client process. Up to that many users never wait for a connection of another one. Many more would not
// help: 10,000 users served by 8,192 connections get half as much done as by 1,024, where both keep the one thread of the server busy.
const poolSize = 1024

// dialsAtOnce bounds the connects under way in one client process. Redis has 511 of them in its queue; the kernel drops what comes beyond, and a
// dropped connect is tried again after 1 s, 3 s and 7 s.
const dialsAtOnce = 128

// poolTimeout bounds the wait for a connection of another user's. The deadline of a call ends it earlier.
const poolTimeout = time.Minute

// options returns settings in which one command is one attempt on the wire: nothing is sent a second time behind the caller's
// back, and nothing is asked of the server that the caller did not ask.
func options(timeout time.Duration, login node.Login) *redis.UniversalOptions {
	quiet()
	return &redis.UniversalOptions{
		Username:              login.User,
		Password:              login.Password,
		SentinelUsername:      login.User,
		SentinelPassword:      login.Password,
		Protocol:              2,
		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           timeout,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		PoolTimeout:           poolTimeout,
		ContextTimeoutEnabled: true,
		PoolSize:              poolSize,
		MaxConcurrentDials:    dialsAtOnce,
		PipelinePoolSize:      -1,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// connect makes a client as a user's program would for the topology that a.Backend names: for one server by its address, for
// Sentinel by asking the Sentinels for the primary, for Redis Cluster by its map of slots. It connects at the first command.
func connect(a backends.Access, p LockParams) (redis.UniversalClient, error) {
	o := options(p.Timeout, a.Login)
	o.Dialer = detour(a.Via, p.Timeout, a.TLS)
	switch a.Backend {
	case nameSingle:
		o.Addrs = a.Addresses(Port)
		if len(o.Addrs) != 1 {
			return nil, fmt.Errorf("redis: %d addresses of port %q; one is needed", len(o.Addrs), Port)
		}
		return redis.NewClient(o.Simple()), nil
	case nameSentinel:
		o.Addrs, o.MasterName = a.Addresses(sentinelPort), cmp.Or(p.Master, monitored)
		watch := a.LoginAt(sentinelPort)
		o.SentinelUsername, o.SentinelPassword = watch.User, watch.Password
		if len(o.Addrs) == 0 {
			return nil, fmt.Errorf("redis: no address of port %q; the Sentinels' are needed", sentinelPort)
		}
		// A Sentinel that hangs is asked twice, and a third time beside the others. Where a connect is over before that, go-redis never
		// gets to the others.
		o.DialTimeout = 4 * p.Timeout
		return redis.NewFailoverClient(o.Failover()), nil
	case nameCluster:
		o.Addrs = a.Addresses(Port)
		if len(o.Addrs) == 0 {
			return nil, fmt.Errorf("redis: no address of port %q", Port)
		}
		return newClusterClient(o), nil
	}
	return nil, fmt.Errorf("redis: backend %q is none of %s, %s and %s", a.Backend, nameSingle, nameSentinel, nameCluster)
}

// detour dials another address than the one that was found, where there is one, and shakes hands where there is TLS. The timeout is that
// of either.
func detour(via map[string]string, timeout time.Duration, tls *node.TLS) func(context.Context, string, string) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		to := address
		if other, ok := via[address]; ok {
			to = other
		}
		conn, err := d.DialContext(ctx, network, to)
		if err != nil {
			return nil, err
		}
		ctx, done := context.WithTimeout(ctx, timeout)
		defer done()
		return tls.Over(ctx, conn, address)
	}
}

// mapInterval is the age at which a cluster client reads the map of slots anew at its next command. Without it, go-redis would keep asking
// a dead primary for a minute: only a redirect makes it look earlier, and a dead node sends none.
const mapInterval = 500 * time.Millisecond

// redirects is how many MOVED and ASK replies one command follows.
const redirects = 3

// newClusterClient makes a client of Redis Cluster that repeats a command only after a redirect. A server that
// answers MOVED or ASK certainly did nothing, so the command still counts as one attempt. By itself go-redis would
// also repeat it after broken connections and time-outs, of which nobody knows what they did.
func newClusterClient(u *redis.UniversalOptions) *redis.ClusterClient {
	o := u.Cluster()
	o.MaxRedirects = redirects
	o.ClusterStateReloadInterval = mapInterval
	o.DisableRoutingPolicies = true // else it first asks a server for its table of commands
	c := redis.NewClusterClient(o)
	c.AddHook(onceHook{})
	return c
}

// onceHook marks every command as one that must not be repeated after a network error.
type onceHook struct{}

type once struct{ redis.Cmder }

// NoRetry tells go-redis to repeat the command after a redirect only.
func (once) NoRetry() bool { return true }

// DialHook changes nothing.
func (onceHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook marks the command.
func (onceHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, once{cmd}) }
}

// ProcessPipelineHook marks all commands.
func (onceHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		marked := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			marked[i] = once{cmd}
		}
		return next(ctx, marked)
	}
}

// silent drops what go-redis would print on standard error, where a client process keeps its own log.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// quiet replaces the logger of go-redis, which is one for the whole process.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// owner is the value that a user writes into a command of its own. The library asks for its bytes at the moment it
// encodes the command for the connection it got, after all waiting and connecting: that is the send time, and whether
// anything was sent at all.
type owner struct {
	id   string
	sent time.Time // of the last attempt; zero: nothing was written
	text [ownerSize]byte
}

// ownerSize is the length of an id that newOwner draws; a library's may be longer.
const ownerSize = 40

// MarshalBinary notes the time.
func (o *owner) MarshalBinary() ([]byte, error) {
	o.sent = time.Now()
	return append(o.text[:0], o.id...), nil
}

// String returns the text that is sent; a cluster client finds the slot of a key by it.
func (o *owner) String() string { return o.id }

// classify says what an error of a command with this owner means: certainly not done where nothing was sent or the server answered
// with an error, else the error as it is, of which nobody knows.
func (o *owner) classify(err error) error {
	var answer redis.Error
	switch {
	case errors.As(err, &answer):
		err = fmt.Errorf("%w: %w", lock.ErrRefused, err)
		if strings.HasPrefix(answer.Error(), "NOREPLICAS") {
			err = lock.Because(lock.Reason{Cause: lock.CauseFewReplicas}, err)
		}
		return err
	case o.sent.IsZero() && !errors.Is(err, lock.ErrNotSent):
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return err
}

type sendingKey struct{}

// sending returns a context under which o notes the send time of each command, the last one's in the end: for commands
// that are written by a library and carry no owner of ours.
func sending(ctx context.Context, o *owner) context.Context {
	return context.WithValue(ctx, sendingKey{}, o)
}

// sendHook puts the owner of a command's context into the command, as its last argument with the same text, so that it learns
// when that is written to the connection. The time at which a hook is called is no send time: the command has
// yet to wait for a connection, perhaps for one to be made.
type sendHook struct{}

// DialHook changes nothing.
func (sendHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook changes the last argument.
func (sendHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o, ok := ctx.Value(sendingKey{}).(*owner); ok {
			args := cmd.Args()
			last := len(args) - 1
			o.id = fmt.Sprint(args[last])
			args[last] = o
			ctx = context.WithValue(ctx, sendingKey{}, nil) // a connection that is made for it says HELLO under the same context
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook changes nothing: no lock sends pipelines.
func (sendHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
