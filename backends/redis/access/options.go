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

// poolSize bounds the connections of one client process. Up to that many users never wait for a connection of another
// one. Many more would not help: 10,000 users served by 8,192 connections get half as much done as by 1,024, where both
// keep the one thread of the server busy.
const poolSize = 1024

// dialsAtOnce bounds the connects under way in one client process. Redis has 511 of them in its queue; the kernel drops
// what comes beyond, and a dropped connect is tried again after 1 s, 3 s and 7 s.
const dialsAtOnce = 128

// poolTimeout bounds the wait for a connection of another user's. The deadline of a call ends it earlier.
const poolTimeout = time.Minute

// Options returns settings in which one command is one attempt on the wire: nothing is sent a second time behind the
// caller's back, and nothing is asked of the server that the caller did not ask.
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

// Detour dials another address than the one that was found, where there is one, and shakes hands where there is TLS.
// The timeout is that of either.
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

// MapInterval is the age at which a cluster client reads the map of slots anew at its next command. Without it,
// go-redis would keep asking a dead primary for a minute: only a redirect makes it look earlier, and a dead node sends
// none.
const MapInterval = 500 * time.Millisecond

// Redirects is how many MOVED and ASK replies one command follows.
const Redirects = 3

// NewClusterClient returns a client of Redis Cluster that repeats a command only after a redirect. A server that
// answers MOVED or ASK certainly did nothing, so the command still counts as one attempt. By itself go-redis would
// also repeat it after broken connections and time-outs, of which nobody knows what they did.
func NewClusterClient(u *redis.UniversalOptions) *redis.ClusterClient {
	o := u.Cluster()
	o.MaxRedirects = Redirects
	o.ClusterStateReloadInterval = MapInterval
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
