package redis

import (
	"context"
	"errors"
	"fmt"
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

// owner is the value that a user writes into a command of its own. The library asks for its bytes at the moment it
// encodes the command for the connection it got, after all waiting and connecting: that is the send time, and whether
// anything was sent at all.
type owner struct {
	id   string
	sent time.Time // of the last attempt; zero: nothing was written
}

// MarshalBinary notes the time.
func (o *owner) MarshalBinary() ([]byte, error) {
	o.sent = time.Now()
	return []byte(o.id), nil
}

// classify says what an error of a command with this owner means: certainly not done where nothing was sent or the server answered
// with an error, else the error as it is, of which nobody knows.
func (o *owner) classify(err error) error {
	var answer redis.Error
	switch {
	case errors.As(err, &answer):
		return fmt.Errorf("%w: %w", lock.ErrRefused, err)
	case o.sent.IsZero() && !errors.Is(err, lock.ErrNotSent):
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return err
}
