package resource

import (
	"fmt"

	"github.com/lockquake/lockquake/lock"
)

// The names of the guards.
const (
	// GuardNone serves everybody.
	GuardNone = "none"
	// GuardFence refuses a read or write whose token is lower than the highest it has seen, or that has none.
	GuardFence = "fence"
	// GuardFenceWrites looks at writes only. It leaks: an old holder's write that arrives between a new holder's read and
	// its write passes, and is overwritten.
	GuardFenceWrites = "fence-writes"
	// GuardCASVersion compares what a write was derived from with what stands there. Nothing is lost by it, whatever the
	// lock does; but it knows no order of holders, and refuses whoever comes second.
	GuardCASVersion = "cas-version"
	// GuardCASOwner has a read register the grant's own, random name, and refuses a write under any other than the one
	// that was registered last. It keeps no order: an old holder that registers late takes the place of the new one.
	GuardCASOwner = "cas-owner"
	// GuardCheckThenWrite is the fence in two steps: who writes asks first whether its token is good enough, and writes
	// when the answer was yes. Whatever happens between the two steps is not seen.
	GuardCheckThenWrite = "check-then-write"
	// GuardSequencer asks the lock service whether the holder's sequencer still describes the lock, and is a fence beside.
	GuardSequencer = "sequencer"
	// GuardLockKey has a service that keeps the values beside the locks look, in the transaction of the access, whether the
	// very key that was granted is still there.
	GuardLockKey = "lock-key"
)

// PointTokenChecked is what a user announces with lock.At between the two steps of GuardCheckThenWrite.
const PointTokenChecked = "token-checked"

// guards lists the register's guards.
var guards = []Guard{
	{Name: GuardNone, Doc: "refuses nothing"},
	{Name: GuardFence, Token: true, Doc: "refuses a read or write whose token is lower than the highest that one has shown"},
	{Name: GuardFenceWrites, Token: true, Doc: "the same for writes; it does not look at reads"},
	{Name: GuardCASVersion, Doc: "refuses a write that does not come from a read of what stands there"},
	{Name: GuardCASOwner, Doc: "refuses a write of any but the grant that read last, by the grant's random name"},
	{Name: GuardCheckThenWrite, Token: true, Doc: "fence, but a write is looked at in one step and applied in another"},
	{Name: GuardSequencer, Token: true, Sequencer: true, Doc: "fence, and the lock service says that the sequencer still describes the lock"},
}

// look is what a guard does about one access before it is applied: it returns an error that wraps ErrFenced, or nil. It is
// called with the store's mutex held.
type look func(c *cell, op operation) error

// lookOf returns the look of a guard. Of GuardSequencer it is what the register can tell by itself.
func lookOf(guard string) look {
	switch guard {
	case GuardFence, GuardSequencer:
		return fence
	case GuardFenceWrites:
		return func(c *cell, op operation) error {
			if op.kind == opRead {
				return nil
			}
			return fence(c, op)
		}
	case GuardCheckThenWrite:
		return func(c *cell, op operation) error {
			if op.kind == opWrite {
				return nil // it has been checked
			}
			return fence(c, op)
		}
	case GuardCASVersion:
		return sameVersion
	case GuardCASOwner:
		return sameOwner
	}
	return func(*cell, operation) error { return nil }
}

// fence refuses tokens that are lower than the highest it has seen.
func fence(c *cell, op operation) error {
	if op.Token == lock.NoToken {
		return fmt.Errorf("%w: it wants a fencing token", ErrFenced)
	}
	if op.Token < c.seen {
		return fmt.Errorf("%w: token %d is lower than %d", ErrFenced, op.Token, c.seen)
	}
	c.seen = op.Token
	return nil
}

// sameVersion refuses a write that was made from another value than the one that stands there.
func sameVersion(c *cell, op operation) error {
	switch {
	case op.kind != opWrite:
		return nil
	case op.version == 0:
		return fmt.Errorf("%w: it wants the version that was read", ErrFenced)
	case op.version != c.version():
		return fmt.Errorf("%w: version %d was read, and %d stands there", ErrFenced, op.version, c.version())
	}
	return nil
}

// sameOwner has reads register their owner, and refuses the writes of others.
func sameOwner(c *cell, op operation) error {
	switch {
	case op.Owner == "":
		return fmt.Errorf("%w: it wants the grant's own name", ErrFenced)
	case op.kind == opRead:
		c.owner = op.Owner
	case op.Owner != c.owner:
		return fmt.Errorf("%w: another grant is registered, or none", ErrFenced)
	}
	return nil
}
