// Package workloads is what clients do: the contract of a workload and the list of all. One file per workload;
// resource/ is what the lock protects.
package workloads

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"
)

// ErrStopped says that the scenario's check, made before the write, showed that the grant is lost or over, so
// nothing was written.
var ErrStopped = errors.New("stopped before the write: the grant is lost or over")

// User is one lock user as a workload sees it. Every operation is recorded by the client; a workload records nothing.
type User interface {
	// Acquire asks for the lock with that number. intended is when an open loop wanted it; zero in a closed loop.
	Acquire(ctx context.Context, lock int, intended time.Time) (Hold, error)
	// Identity says who this is.
	Identity() Identity
	// Random returns the user's own source of randomness, split from the run's seed.
	Random() *rand.Rand
}

// Sharer is a User that can ask for a lock in shared mode, which not every lock knows.
type Sharer interface {
	// AcquireShared is Acquire in shared mode.
	AcquireShared(ctx context.Context, lock int, intended time.Time) (Hold, error)
}

// Identity tells a user its place among all users of the run.
type Identity struct {
	Number  int // from 0, over all clients
	Total   int // number of users of the run
	Process int // number of users of this user's own process
}

// Hold is a lock that a user has in hand.
type Hold interface {
	// Read reads the value that the lock protects.
	Read(ctx context.Context) (int64, error)
	// Write writes it. ErrStopped is returned, and nothing sent, when the scenario told the user to look first and
	// what it saw was a loss or an ended validity.
	Write(ctx context.Context, value int64) error
	// Release gives the lock back.
	Release(ctx context.Context) error
}

// The points that a client announces with lock.At, in the order in which a cycle passes them. A lock may announce more
// within its acquire and release.
const (
	PointAcquired = "acquired"       // the grant is in hand, and on record
	PointRead     = "before-read"    // before each read
	PointWrite    = "before-write"   // before each write, and after the look that a scenario's check demands
	PointRelease  = "before-release" // before the release has begun
)

// Workload is what one user does.
type Workload interface {
	// Locks returns the number of locks that this many users of the whole run use; they are named lock-0, lock-1, ...
	Locks(users int) int
	// NeedsResource tells whether it reads or writes what the lock protects.
	NeedsResource() bool
	// Run is one user's life until ctx ends. Errors of operations are recorded by the client and are no reason to end.
	Run(ctx context.Context, u User) error
}

// Pacer is a Workload that may run in an open loop: it begins at intended times, whether or not a user is free.
type Pacer interface {
	// Unstarted returns how many intended arrivals came due up to end, which is ns of the run's clock, and never got a
	// user. It is asked once, when every user's Run has returned.
	Unstarted(end int64) int64
}

// Sharing is a Workload that may ask for shared mode; its users must be Sharers.
type Sharing interface {
	// Shares tells whether it does.
	Shares() bool
}

// Brief is a Workload that may begin to give each lock back as soon as it has it, and does nothing in between.
type Brief interface {
	// GivesBackAtOnce tells whether it does.
	GivesBackAtOnce() bool
}

// Renewing is a Workload whose holds are meant to be extended while they last.
type Renewing interface {
	// Renews tells whether they are.
	Renews() bool
}

// Termed is a Workload whose writes can be judged only by numbers of its own.
type Termed interface {
	// Terms returns them by name.
	Terms() map[string]int64
}

// Meaning says what a workload's acknowledged writes mean, and so what can be judged of them at the end.
type Meaning string

// The meanings.
const (
	// Sales: each write sells one unit of the lock's stock, of which there are TermStock.
	Sales Meaning = "sales"
	// Seats: each write gives the lock's seat to a booking, which its value names; 0 is a free seat.
	Seats Meaning = "seats"
	// Transfers: each write is one half of a transfer between two locks' accounts; the sum over all stays 0.
	Transfers Meaning = "transfers"
	// Elements: each write replaces a set by what was read and one element more, which its value names; 0 is the empty
	// set.
	Elements Meaning = "elements"
	// Work: each write says that the piece of work is done that its value names. Later pieces of one lock have higher
	// values.
	Work Meaning = "work"
)

// Kind is an entry of the list of workloads.
type Kind struct {
	Name string
	Doc  string // one sentence
	// Increments says that each acknowledged write adds one to the value that the lock protects, so that lost updates
	// can be counted.
	Increments bool
	// Writes is what else they mean; "" is nothing that could be judged.
	Writes Meaning
	// New makes the workload; decode fills a struct with its own parameters, strictly: from the scenario's YAML in the
	// supervisor, from JSON in the client process. The Workload itself marshals to JSON that New's decode accepts.
	New func(decode func(into any) error) (Workload, error)
}

// All is the list of workloads; the first is the default.
func All() []Kind {
	return []Kind{acquireRelease, counter, guardedSet, inventory, booking, balance, holdRenew, stampede, spread, once}
}

// LockName is the name of the lock with that number.
func LockName(i int) string { return "lock-" + strconv.Itoa(i) }
