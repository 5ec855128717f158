package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockquake/lockquake/lock"
)

// poolSize bounds the connections of one client process. It is far above the number of users, so that no command
// waits for a connection of another user's.
const poolSize = 8192

// options returns settings in which one command is one attempt on the wire: nothing is sent a second time behind the caller's
// back, and nothing is asked of the server that the caller did not ask.
func options(timeout time.Duration) *redis.Options {
	quiet()
	return &redis.Options{
		Protocol:              2,
		MaxRetries:            -1,
		DialerRetries:         1,
		DialTimeout:           timeout,
		ReadTimeout:           timeout,
		WriteTimeout:          timeout,
		PoolTimeout:           timeout,
		ContextTimeoutEnabled: true,
		PoolSize:              poolSize,
		PipelinePoolSize:      -1,
		DisableIdentity:       true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

// silent drops what go-redis would print on standard error, where a client process keeps its own log.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// quiet replaces the logger of go-redis, which is one for the whole process.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

// dialer connects and marks a refusal as what it is: no command of ours can have reached the server.
func dialer(timeout time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: timeout, KeepAlive: -1}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
		}
		return conn, nil
	}
}

type sentKey struct{}

// sent is the time at which the last attempt at a command was handed to the connection.
type sent struct{ at time.Time }

// withSent returns a context whose commands report their send time in the returned value.
func withSent(ctx context.Context) (context.Context, *sent) {
	s := &sent{}
	return context.WithValue(ctx, sentKey{}, s), s
}

// stamp is the hook that notes the time before a command is written. Connecting, where it is needed, comes after it:
// the time is never later than the write.
type stamp struct{}

func (stamp) DialHook(next redis.DialHook) redis.DialHook { return next }

func (stamp) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s, ok := ctx.Value(sentKey{}).(*sent); ok {
			s.at = time.Now()
		}
		return next(ctx, cmd)
	}
}

func (stamp) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// classify says what an error of a command means: certainly not done where nothing was sent or the server answered
// with an error, else the error as it is, of which nobody knows.
func classify(err error) error {
	var answer redis.Error
	switch {
	case errors.Is(err, lock.ErrNotSent):
		return err
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	case errors.As(err, &answer):
		return fmt.Errorf("%w: %w", lock.ErrRefused, err)
	}
	return err
}
