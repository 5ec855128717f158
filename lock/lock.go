// Package lock defines the terms of a distributed lock: what is requested, what is granted, until when, and how it
// ends. It depends only on the standard library, so that any other module can implement a Locker.
//
// Times in this package are time.Time values that carry Go's monotonic reading. A validity computed from the wall
// clock alone would move with it.
package lock

import (
	"context"
	"errors"
	"time"
)

// Mode is the mode of a grant: exclusive, or shared with other shared grants.
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

// ParseMode parses the text of String; "" is Exclusive.
func ParseMode(text string) (m Mode, ok bool) {
	switch text {
	case "", Exclusive.String():
		return Exclusive, true
	case Shared.String():
		return Shared, true
	}
	return Exclusive, false
}

// Token is a fencing token: a number from the service that grows with each grant of one lock, such as an etcd create
// revision or a ZooKeeper czxid. A random owner id is not a fencing token.
type Token uint64

// NoToken is the token of a grant without a fencing token.
const NoToken Token = 0

// Validity is how long a holder may believe in its grant, as the holder itself can compute it. It counts from the
// send time of the request that started or renewed the promise, minus drift, never from the time of the reply.
//
// Example: a request with a TTL of 2 s is sent at 10.0 s and answered at 10.5 s. The service counts from some moment
// in between, perhaps from 10.0 s. With a drift of 22 ms the grant is valid until 11.978 s. Counted from the reply,
// the holder would believe in it until 12.478 s, half a second after another user may have the lock.
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

// Until returns the validity that ends at t, which must carry a monotonic reading.
func Until(t time.Time) Validity { return Validity{kind: kindAt, at: t} }

// Endless returns the validity of a grant for which the service named no end: the holder is entitled until release or
// death.
func Endless() Validity { return Validity{kind: kindNone} }

// Unknown returns the validity of a grant about which nothing is known: its holder is not entitled. It is the zero
// value.
func Unknown() Validity { return Validity{} }

// Time returns the end of the validity; ok is false if it is endless or unknown.
func (v Validity) Time() (end time.Time, ok bool) { return v.at, v.kind == kindAt }

// IsEndless reports whether the service named no end.
func (v Validity) IsEndless() bool { return v.kind == kindNone }

// Covers reports whether a holder may still believe in its grant at time t.
func (v Validity) Covers(t time.Time) bool {
	return v.kind == kindNone || v.kind == kindAt && t.Before(v.at)
}

// Request asks for one lock.
type Request struct {
	Lock string        // name of the lock
	Mode Mode          // exclusive unless the lock offers shared mode
	TTL  time.Duration // how long the service keeps the grant without hearing from the client
}

// Grant is what a Locker returns for an acquired lock. It is immutable: a renewal yields a new Grant with the same
// ID.
type Grant struct {
	Lock       string    // name of the lock
	Mode       Mode      // as requested
	ID         string    // the adapter's name for this grant (a random owner value, a key)
	Token      Token     // fencing token, or NoToken
	Issued     time.Time // send time of the request that was granted
	ValidUntil Validity  // how long the holder may believe in it
	Reason     Reason    // what the adapter knows about how it came about; the zero Reason: nothing
}

// Locker is a lock service as one user sees it. It serves one user, and its methods are called one at a time.
type Locker interface {
	// Acquire blocks until the lock is granted or ctx ends. ErrContended means that certainly nothing was granted.
	// Any error not from this package means that the outcome is unknown.
	Acquire(ctx context.Context, r Request) (Grant, error)
	// Release gives the grant back. ErrNotHeld means that the service certainly no longer had it.
	Release(ctx context.Context, g Grant) error
	// Close frees the Locker's resources, including sessions.
	Close() error
}

// BusyCloser is a Locker whose Close may be called while another of its methods is running; that method then returns
// an error. For any other Locker, the context of the running call is cancelled before Close.
type BusyCloser interface {
	Locker
	// ClosesBusy marks the type; it is never called.
	ClosesBusy()
}

// TryAcquirer is a Locker that can answer at once.
type TryAcquirer interface {
	// TryAcquire makes one attempt and returns ErrContended if another user holds the lock.
	TryAcquire(ctx context.Context, r Request) (Grant, error)
}

// Renewer is a Locker whose holder can extend its grants.
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

// Watcher is a Locker that learns of every change of its grants: renewals by a background keep-alive, and losses.
type Watcher interface {
	// Watch returns a channel of the changes of g. It is closed when ctx ends or after a loss. The caller must drain
	// it.
	Watch(ctx context.Context, g Grant) <-chan Change
}

// Checker is a Locker that can ask the service whether a grant is still valid.
type Checker interface {
	// Check returns nil if the service says that the holder still has g, and ErrNotHeld if it says otherwise.
	Check(ctx context.Context, g Grant) error
}

// Sequencer describes a lock in the state in which its holder acquired it. A resource that acts on the holder's
// behalf can check it (Burrows, "The Chubby lock service", OSDI 2006, section 2.4).
type Sequencer struct {
	Lock       string
	Mode       Mode
	Generation Token // grows each time the lock goes from free to held
}

// Sequencer returns the grant's sequencer. The grant's token must be the lock's generation.
func (g Grant) Sequencer() Sequencer {
	return Sequencer{Lock: g.Lock, Mode: g.Mode, Generation: g.Token}
}

// SequencerChecker is a Locker that can check whether a sequencer, from its own grant or another's, still describes
// the lock.
type SequencerChecker interface {
	// CheckSequencer returns nil if it does, ErrNotHeld if it does not.
	CheckSequencer(ctx context.Context, q Sequencer) error
}

// Errors with a certain outcome. Adapters wrap them with %w. After any other error the outcome is unknown.
var (
	// ErrContended means that the lock was not granted: another user has it, or the wait was given up.
	ErrContended = errors.New("lock is held by another user")
	// ErrNotHeld means that the service no longer has the grant.
	ErrNotHeld = errors.New("grant is not held")
	// ErrLost means that the grant was lost while its holder still counted on it.
	ErrLost = errors.New("grant was lost")
	// ErrNotSent means that the request certainly never reached the service: no connection could be made.
	ErrNotSent = errors.New("request was not sent")
	// ErrRefused means that the service answered that it would not do it, for example a server that is still loading
	// its data.
	ErrRefused = errors.New("service refused the request")
)

// Certain reports whether err means that the operation certainly had no effect.
func Certain(err error) bool {
	return errors.Is(err, ErrContended) || errors.Is(err, ErrNotHeld) || errors.Is(err, ErrLost) ||
		errors.Is(err, ErrNotSent) || errors.Is(err, ErrRefused)
}
