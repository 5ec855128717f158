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

// classify says what an error of a command with this owner means: certainly not done where nothing was sent or the
// server answered with an error, else the error as it is, of which nobody knows.
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

// sendHook puts the owner of a command's context into the command, as its last argument with the same text, so that it
// learns when that is written to the connection. The time at which a hook is called is no send time: the command has
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
			// a connection that is made for it says HELLO under the same context
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
