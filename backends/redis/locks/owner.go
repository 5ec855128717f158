package locks

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/lock"
)

// owner is the value that a user writes into a command. The library asks for its bytes when it encodes the command
// for its connection, after all waiting and connecting. That call gives the send time, and shows whether anything was
// sent at all.
type owner struct {
	id   string
	sent time.Time // of the last attempt; zero: nothing was sent
	text [ownerSize]byte
}

// ownerSize is the length of an id from newOwner; a library's may be longer.
const ownerSize = 40

// MarshalBinary notes the send time.
func (o *owner) MarshalBinary() ([]byte, error) {
	o.sent = time.Now()
	return append(o.text[:0], o.id...), nil
}

// String returns the text that is sent; a cluster client derives a key's slot from it.
func (o *owner) String() string { return o.id }

// classify classifies an error of a command with this owner. If nothing was sent, or if the server answered with an
// error, the command was certainly not done. Any other error is returned unchanged: the outcome is unknown.
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

// sending returns a context under which o notes the send time of each command; the last one's remains. It is for
// commands that a library writes, which carry no owner.
func sending(ctx context.Context, o *owner) context.Context {
	return context.WithValue(ctx, sendingKey{}, o)
}

// sendHook replaces the last argument of a command with the owner in the command's context, if it has the same text.
// So the owner learns when the command is written to the connection. The time at which a hook is called is not the
// send time: the command may still have to wait for a connection, or for a connect.
type sendHook struct{}

// DialHook changes nothing.
func (sendHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook replaces the last argument.
func (sendHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if o, ok := ctx.Value(sendingKey{}).(*owner); ok {
			args := cmd.Args()
			last := len(args) - 1
			o.id = fmt.Sprint(args[last])
			args[last] = o
			// a connection that is opened for it sends HELLO under the same context
			ctx = context.WithValue(ctx, sendingKey{}, nil)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook changes nothing: no lock sends pipelines.
func (sendHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// newOwner draws the value of one grant.
func newOwner() *owner {
	var random [ownerSize / 2]byte
	_, _ = rand.Read(random[:]) // never fails: the runtime ends the program instead
	o := &owner{}
	hex.Encode(o.text[:], random[:])
	o.id = string(o.text[:])
	return o
}

// oneValue is a recipe whose user has one value for all attempts of an acquire, and draws it as draw does.
type oneValue struct {
	*recipe
	draw func(l *recipe, began time.Time) (id string, why lock.Reason)
}

// Acquire polls until the key was free.
func (l oneValue) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.poll(ctx, r, l.attempts())
}

// TryAcquire makes one attempt.
func (l oneValue) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.attempts()(ctx, r)
}

// attempts are those of an acquire that begins now.
func (l oneValue) attempts() func(context.Context, lock.Request) (lock.Grant, error) {
	id, why := l.draw(l.recipe, time.Now())
	return func(ctx context.Context, r lock.Request) (lock.Grant, error) {
		g, err := l.attemptAs(ctx, r, &owner{id: id}, setPx(l.recipe, r))
		g.Reason = why
		return g, err
	}
}
