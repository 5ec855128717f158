// Package workloads defines what clients do: the contract of a workload and the list of all. One file per workload;
// resource/ is what the lock protects.
package workloads

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"
)

// ErrStopped says that nothing was written: the scenario's check before the write showed that the grant is lost or
// over.
var ErrStopped = errors.New("stopped before the write: the grant is lost or expired")

// User is one lock user as a workload sees it. The client records every operation; a workload records nothing.
type User interface {
	// Acquire asks for the lock with that number. intended is the intended start in an open loop; zero in a closed
	// loop.
	Acquire(ctx context.Context, lock int, intended time.Time) (Hold, error)
	// Identity returns the user's place in the run.
	Identity() Identity
	// Random returns the user's own source of randomness, split from the run's seed.
	Random() *rand.Rand
}

// Sharer is a User that can ask for a lock in shared mode, which not every lock supports.
type Sharer interface {
	// AcquireShared is Acquire in shared mode.
	AcquireShared(ctx context.Context, lock int, intended time.Time) (Hold, error)
}

// Identity is a user's place among all users of the run.
type Identity struct {
	Number  int // from 0, over all clients
	Total   int // number of users of the run
	Process int // number of users of this user's own process
}

// Hold is a lock in a user's hands.
type Hold interface {
	// Read reads the value that the lock protects.
	Read(ctx context.Context) (int64, error)
	// Write writes that value. It returns ErrStopped, and sends nothing, if the scenario demands a check first and
	// that shows a loss or an ended validity.
	Write(ctx context.Context, value int64) error
	// Release releases the lock.
	Release(ctx context.Context) error
}

// The points that a client announces with lock.At, in the order of a cycle. A lock may announce more within its
// acquire and release.
const (
	PointAcquired = "acquired"       // the grant is in hand and recorded
	PointRead     = "before-read"    // before each read
	PointWrite    = "before-write"   // before each write, and after the check that a scenario demands
	PointRelease  = "before-release" // before the release begins
)

// Workload defines what one user does.
type Workload interface {
	// Locks returns the number of locks for this many users of the whole run; they are named lock-0, lock-1, ...
	Locks(users int) int
	// NeedsResource reports whether the workload reads or writes what the lock protects.
	NeedsResource() bool
	// Run is one user's life until ctx ends. The client records errors of operations; they are no reason to end.
	Run(ctx context.Context, u User) error
}

// Pacer is a Workload that may run in an open loop: it begins at intended times, whether or not a user is free.
type Pacer interface {
	// Unstarted returns how many intended arrivals were due up to end, in ns of the run's clock, and never got a
	// user. It is called once, after every user's Run has returned.
	Unstarted(end int64) int64
}

// Sharing is a Workload that may ask for shared mode; its users must be Sharers.
type Sharing interface {
	// Shares reports whether it does.
	Shares() bool
}

// Brief is a Workload that may release each lock as soon as it is granted, without work in between.
type Brief interface {
	// GivesBackAtOnce reports whether it does.
	GivesBackAtOnce() bool
}

// Renewing is a Workload whose holds are meant to be extended while they last.
type Renewing interface {
	// Renews reports whether they are.
	Renews() bool
}

// Termed is a Workload whose writes can be judged only with its own numbers.
type Termed interface {
	// Terms returns these numbers by name.
	Terms() map[string]int64
}

// Meaning is what a workload's acknowledged writes mean, and so what can be judged of them at the end.
type Meaning string

// The meanings.
const (
	// Sales: each write sells one unit of the lock's stock of TermStock units.
	Sales Meaning = "sales"
	// Seats: each write gives the lock's seat to a booking, which the value names; 0 is a free seat.
	Seats Meaning = "seats"
	// Transfers: each write is one half of a transfer between two locks' accounts; the sum over all stays 0.
	Transfers Meaning = "transfers"
	// Elements: each write replaces a set by the one that was read and one more element, which the value names; 0 is
	// the empty set.
	Elements Meaning = "elements"
	// Work: each write says that a piece of work is done, which the value names. Later pieces of one lock have higher
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
	// Writes is any other meaning of the writes; "" means that they cannot be judged.
	Writes Meaning
	// New makes the workload. decode strictly fills a struct with its parameters, from the scenario's YAML in the
	// supervisor and from JSON in the client process. The Workload marshals to JSON that New's decode accepts.
	New func(decode func(into any) error) (Workload, error)
}

// All returns all workloads; the first is the default.
func All() []Kind {
	return []Kind{acquireRelease, counter, guardedSet, inventory, booking, balance, holdRenew, stampede, spread, once}
}

// LockName returns the name of the lock with that number.
func LockName(i int) string { return "lock-" + strconv.Itoa(i) }
