package redis

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

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
