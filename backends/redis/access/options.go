package access

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockquake/lockquake/internal/node"
)

// poolSize bounds the connections of one client process. Up to that many users never wait for a connection. Many more
// would not help: while the server's one thread is saturated, 10,000 users do half as much on 8,192 connections as on
// 1,024.
const poolSize = 1024

// dialsAtOnce bounds the pending connects of one client process. Redis queues 511 of them. The kernel drops further
// ones, and retries a dropped connect after 1 s, 3 s and 7 s.
const dialsAtOnce = 128

// poolTimeout bounds the wait for a free connection. The deadline of a call ends it earlier.
const poolTimeout = time.Minute

// Options returns settings with which one command is one attempt on the wire: the library repeats nothing, and asks
// the server nothing on its own.
func Options(timeout time.Duration, login node.Login) *redis.UniversalOptions {
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

// Detour dials the replacement of an address, if via has one, and makes the TLS handshake, if there is TLS. The
// timeout is for each of the two.
func Detour(via map[string]string, timeout time.Duration, tls *node.TLS) func(context.Context, string,
	string) (net.Conn, error) {
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

// MapInterval is the age at which a cluster client reads the slot map again with its next command. Without it,
// go-redis would keep asking a dead primary for a minute: only a redirect makes it look earlier, and a dead node
// sends none.
const MapInterval = 500 * time.Millisecond

// Redirects is how many MOVED and ASK replies one command follows.
const Redirects = 3

// NewClusterClient returns a client of Redis Cluster that repeats a command only after a redirect. A server that
// answers MOVED or ASK certainly did nothing, so the command still counts as one attempt. By default go-redis would
// also repeat commands after broken connections and timeouts, whose outcome is unknown.
func NewClusterClient(u *redis.UniversalOptions) *redis.ClusterClient {
	o := u.Cluster()
	o.MaxRedirects = Redirects
	o.ClusterStateReloadInterval = MapInterval
	o.DisableRoutingPolicies = true // otherwise it first asks a server for its table of commands
	c := redis.NewClusterClient(o)
	c.AddHook(onceHook{})
	return c
}

// onceHook marks every command as not to be repeated after a network error.
type onceHook struct{}

type once struct{ redis.Cmder }

// NoRetry makes go-redis repeat the command only after a redirect.
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

// silent discards what go-redis would print on standard error, where a client process keeps its own log.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// quiet replaces the logger of go-redis, which is global to the process.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silent{}) })
