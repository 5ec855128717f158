package redis

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// errTakenBack says that an attempt left nothing behind.
var errTakenBack = fmt.Errorf("%w: what was asked for was taken back", lock.ErrContended)

// errNoAnswer says that nobody knows what became of the key in the end.
var errNoAnswer = errors.New("the delete was not answered")

type rueidisGrantKey struct{}

// rueidisPromise is what a command asks for: to keep the key until a time.
type rueidisPromise struct {
	sent  time.Time
	until time.Time
	clock int64 // the same end, as the command names it: ms of the client's wall clock
}

// rueidisGrant is one call for a lock, whose attempts have a value each, and the grant that came of the last one.
type rueidisGrant struct {
	ttl    time.Duration
	life   context.Context // ends with the grant
	cancel context.CancelFunc
	over   chan struct{} // closed when the user gives it back

	mu       sync.Mutex
	value    string
	standing bool          // the key of this value may be there
	left     bool          // that of an earlier attempt may
	why      error         // why there is certainly nothing of the last attempt
	granted  bool          // the last attempt was
	issued   time.Time     // send time of what was granted
	valid    lock.Validity // as last promised
	clock    int64         // what valid was computed from
	changed  chan struct{} // closed and replaced at each change of valid
	end      error         // what the delete, or the last renewal, said of the key
}

func newRueidisGrant(ttl time.Duration) *rueidisGrant {
	return &rueidisGrant{ttl: ttl, over: make(chan struct{}), changed: make(chan struct{}), end: errNoAnswer}
}

// in returns a context whose commands are the grant's.
func (a *rueidisGrant) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, rueidisGrantKey{}, a)
}

// asks is told before SET or a renewal is sent.
func (a *rueidisGrant) asks(value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if value != a.value {
		a.left = a.left || a.standing
		a.value, a.granted = value, false
	}
	a.standing = true
}

// answered is told what came of SET or of a renewal; settled says that no delete of the value will follow.
func (a *rueidisGrant) answered(p rueidisPromise, resp rueidis.RedisResult) (settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.granted {
		n, err := resp.AsInt64()
		switch {
		case err == nil && n == 1:
			a.promised(p)
		case err == nil:
			a.standing, a.end = false, lock.ErrNotHeld
			return true
		}
		return false
	}
	err := resp.Error()
	_, answer := rueidis.IsRedisErr(err)
	switch {
	case err == nil:
		a.granted, a.issued = true, p.sent
		a.promised(p)
	case rueidis.IsRedisNil(err):
		a.standing, a.why = false, lock.ErrContended
		return true
	case answer:
		a.standing, a.why = false, fmt.Errorf("%w: %w", lock.ErrRefused, err)
	case errors.Is(err, lock.ErrNotSent):
		a.standing, a.why = false, err
	}
	return false
}

// promised notes a new end of the validity; the caller holds the lock.
func (a *rueidisGrant) promised(p rueidisPromise) {
	valid := lock.Until(p.until.Add(-backends.Drift(a.ttl)))
	if p.clock == a.clock { // the library repeats its last renewal whenever the key has changed, even if by itself
		return
	}
	a.valid, a.clock = valid, p.clock
	close(a.changed)
	a.changed = make(chan struct{})
}

// deleted is told what came of the delete; settled says that it is not tried again.
func (a *rueidisGrant) deleted(resp rueidis.RedisResult) (settled bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer, ok := rueidis.IsRedisErr(resp.Error()); ok && answer.IsNoScript() {
		return false
	}
	n, err := resp.AsInt64()
	switch {
	case err != nil:
		a.end = fmt.Errorf("%w: %v", errNoAnswer, err) // its certainty is not the release's
		return true
	case n == 0:
		a.end = lock.ErrNotHeld
	default:
		a.end = nil
	}
	a.standing, a.why = false, errTakenBack
	return true
}

// grant returns what the user gets.
func (a *rueidisGrant) grant(name string) lock.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	return lock.Grant{
		Lock: name, Mode: lock.Exclusive, ID: printable(a.value), Token: lock.NoToken, Issued: a.issued, ValidUntil: a.valid,
	}
}

// printable is the random value as grants and facts show it.
func printable(value string) string { return hex.EncodeToString([]byte(value)) }

// refused says what it means that the library granted nothing.
func (a *rueidisGrant) refused(ctx context.Context, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	switch {
	case a.standing || a.left:
		return fmt.Errorf("rueidislock, with an attempt of unknown outcome: %v", err) // nor is the last one's certainty the call's
	case a.why == nil:
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return fmt.Errorf("%w: %w", a.why, err)
}

// released says what became of the key.
func (a *rueidisGrant) released() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.end
}

func (a *rueidisGrant) validity() (lock.Validity, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.valid, a.changed
}
