// Package lock is the vocabulary of a distributed lock: what is asked for, what is granted, until when, and how it
// ends. It depends on nothing but the standard library, so that a Locker can be implemented from any other module.
//
// Times in this package are time.Time values that carry Go's monotonic reading; a validity that was computed from a
// wall clock alone would move with it.
package lock

import (
	"context"
	"errors"
	"time"
)

// Mode says whether a grant excludes everyone or only those who want to exclude.
type Mode uint8

// The two modes. Two grants conflict unless both are Shared.
const (
	Exclusive Mode = iota
	Shared
)

// String returns "exclusive" or "shared".
func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// ParseMode reads what String wrote; "" is Exclusive.
func ParseMode(text string) (m Mode, ok bool) {
	switch text {
	case "", Exclusive.String():
		return Exclusive, true
	case Shared.String():
		return Shared, true
	}
	return Exclusive, false
}

// Token is a fencing token: a number from the service that grows with each grant of one lock (an etcd create revision,
// a ZooKeeper czxid). A random owner id is not a fencing token.
type Token uint64

// NoToken is what a lock without fencing tokens puts into its grants.
const NoToken Token = 0

// Validity is how long a holder may believe in its grant, as the holder itself may compute it: counted from the send
// time of the request that started or renewed the promise, minus drift, never from the time of the reply.
//
// Example: a request with a TTL of 2 s is sent at 10.0 s and answered at 10.5 s. The service counts from some moment
// in between, perhaps from 10.0 s. With a drift of 22 ms the grant is valid until 11.978 s. Counted from the reply,
// a holder would believe in it until 12.478 s, half a second after somebody else may have it.
type Validity struct {
	kind validityKind
	at   time.Time
}

type validityKind uint8

const (
	kindUnknown validityKind = iota
	kindNone
	kindAt
)

// Until is a validity that ends at t, which must carry a monotonic reading.
func Until(t time.Time) Validity { return Validity{kind: kindAt, at: t} }

// Endless is the validity of a grant for which the service named no end: entitled until release or death.
func Endless() Validity { return Validity{kind: kindNone} }

// Unknown is the validity of a grant about which nothing can be said: its holder is not entitled. It is the zero value.
func Unknown() Validity { return Validity{} }

// Time returns the end of the validity; ok is false when it is endless or unknown.
func (v Validity) Time() (end time.Time, ok bool) { return v.at, v.kind == kindAt }

// IsEndless tells whether the service named no end.
func (v Validity) IsEndless() bool { return v.kind == kindNone }

// Covers tells whether a holder may still believe in its grant at time t.
func (v Validity) Covers(t time.Time) bool {
	return v.kind == kindNone || v.kind == kindAt && t.Before(v.at)
}

// Request asks for one lock.
type Request struct {
	Lock string        // name of the lock
	Mode Mode          // exclusive unless the lock offers more
	TTL  time.Duration // how long the service is asked to keep the grant without hearing from the client
}

// Grant is what a Locker hands out. It is immutable: a renewal yields a new Grant with the same ID.
type Grant struct {
	Lock       string    // name of the lock
	Mode       Mode      // as requested
	ID         string    // the adapter's name for this grant (a random owner value, a key)
	Token      Token     // fencing token, or NoToken
	Issued     time.Time // send time of the request that was granted
	ValidUntil Validity  // how long the holder may believe in it
	Reason     Reason    // what the adapter knows of how it came about; without a cause: nothing
}

// Locker is a lock service as one user sees it. It serves one user, and its methods are called one at a time.
type Locker interface {
	// Acquire blocks until the lock is granted or ctx ends. ErrContended means that certainly nothing was granted.
	// An error that is none of this package's means that nobody knows.
	Acquire(ctx context.Context, r Request) (Grant, error)
	// Release gives the grant back. ErrNotHeld means that the service certainly did not have it any more.
	Release(ctx context.Context, g Grant) error
	// Close frees what the Locker holds, sessions included.
	Close() error
}

// BusyCloser is a Locker whose Close may be called while another of its methods is under way, which then returns with
// an error. Of any other Locker the context of the call that is under way is ended first.
type BusyCloser interface {
	Locker
	// ClosesBusy is never called.
	ClosesBusy()
}

// TryAcquirer is a Locker that can answer at once.
type TryAcquirer interface {
	// TryAcquire makes one attempt and returns ErrContended when somebody else holds the lock.
	TryAcquire(ctx context.Context, r Request) (Grant, error)
}

// Renewer is a Locker whose grants can be extended by their holder.
type Renewer interface {
	// Renew asks the service to keep the grant for another TTL, counted from the send time of this request. ErrLost
	// and ErrNotHeld mean that the grant is certainly gone.
	Renew(ctx context.Context, g Grant, ttl time.Duration) (Grant, error)
}

// Change is something that a Watcher learned about a grant.
type Change struct {
	At         time.Time // when it was learned
	Lost       bool      // the grant is gone; nothing follows
	ValidUntil Validity  // the new end of the validity, when not lost
}

// Watcher is a Locker that hears of every change of its grants: renewals by a background keep-alive, and their loss.
type Watcher interface {
	// Watch returns a channel of the changes of g, closed when ctx ends or after a loss. The caller must drain it.
	Watch(ctx context.Context, g Grant) <-chan Change
}

// Checker is a Locker that can ask the service whether a grant still stands.
type Checker interface {
	// Check returns nil when the service says that g is still its holder's, ErrNotHeld when it says that it is not.
	Check(ctx context.Context, g Grant) error
}

// Sequencer describes a lock in the state in which its holder acquired it. Whoever acts on the holder's behalf can
// check it (Burrows, "The Chubby lock service", OSDI 2006, section 2.4).
type Sequencer struct {
	Lock       string
	Mode       Mode
	Generation Token // grows each time that the lock goes from free to held
}

// Sequencer returns that of the grant, whose token must be the lock's generation.
func (g Grant) Sequencer() Sequencer {
	return Sequencer{Lock: g.Lock, Mode: g.Mode, Generation: g.Token}
}

// SequencerChecker is a Locker that can tell whether a sequencer, of its own grant or another's, still describes the
// lock.
type SequencerChecker interface {
	// CheckSequencer returns nil when it does, ErrNotHeld when it does not.
	CheckSequencer(ctx context.Context, q Sequencer) error
}

// The errors that mean certainly. Adapters wrap them with %w; any other error is of unknown outcome.
var (
	// ErrContended says that the lock was not granted because somebody else has it, or the wait for it was given up.
	ErrContended = errors.New("lock is held by another user")
	// ErrNotHeld says that the service does not have the grant any more.
	ErrNotHeld = errors.New("grant is not held")
	// ErrLost says that the grant was lost while its holder still had it in hand.
	ErrLost = errors.New("grant was lost")
	// ErrNotSent says that the request certainly never reached the service: no connection could be made.
	ErrNotSent = errors.New("request was not sent")
	// ErrRefused says that the service answered that it would not do it, as a server that still loads its data does.
	ErrRefused = errors.New("service refused the request")
)

// Certain tells whether err says for sure that the operation had no effect.
func Certain(err error) bool {
	return errors.Is(err, ErrContended) || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrLost) ||
		errors.Is(err, ErrNotSent) || errors.Is(err, ErrRefused)
}
