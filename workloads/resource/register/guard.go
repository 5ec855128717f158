package register

import (
	"slices"

	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads/resource"
)

// guards lists the register's guards.
var guards = []resource.Guard{
	{Name: resource.GuardNone, Doc: "refuses nothing"},
	{
		Name: resource.GuardFence, Token: true,
		Doc: "refuses a read or write whose token is lower than the highest seen so far",
	},
	{Name: resource.GuardFenceWrites, Token: true, Doc: "the same for writes; reads are not checked"},
	{
		Name: resource.GuardCASVersion, Conditional: true,
		Doc: "refuses a write that is not based on the current value",
	},
	{
		Name: resource.GuardFenceVersion, Token: true, Conditional: true,
		Doc: "fence-writes and cas-version at once: a write must pass both",
	},
	{Name: resource.GuardCASOwner, Doc: "refuses a write unless its grant was the last to read, by the grant's random name"},
	{
		Name: resource.GuardCheckThenWrite, Token: true, TwoSteps: true,
		Doc: "fence, but a write is checked in one step and applied in another",
	},
	{
		Name: resource.GuardSequencer, Token: true, Sequencer: true,
		Doc: "fence, and the lock service must confirm that the sequencer is still valid",
	},
	{
		Name: resource.GuardAskThenWrite, Token: true, Sequencer: true, TwoSteps: true,
		Doc: "the lock service confirms it in one step, and the write is applied in another",
	},
}

// kindOf returns a guard of the register by its name, or the zero Guard.
func kindOf(name string) resource.Guard {
	i := slices.IndexFunc(guards, func(g resource.Guard) bool { return g.Name == name })
	if i < 0 {
		return resource.Guard{}
	}
	return guards[i]
}

// look is a guard's check before an access. It returns nil, or an error that wraps ErrFenced. The caller holds the
// store's mutex.
type look func(c *cell, op operation) error

// lookOf returns the check of a guard; for GuardSequencer the part that the register can do by itself.
func lookOf(guard string) look {
	switch guard {
	case resource.GuardFence, resource.GuardSequencer:
		return fence
	case resource.GuardFenceWrites:
		return fenceWrites
	case resource.GuardFenceVersion:
		return func(c *cell, op operation) error {
			if err := sameVersion(c, op); err != nil {
				return err // its token is not registered
			}
			return fenceWrites(c, op)
		}
	case resource.GuardCheckThenWrite:
		return func(c *cell, op operation) error {
			if op.kind == opWrite {
				return nil // checked already
			}
			return fence(c, op)
		}
	case resource.GuardCASVersion:
		return sameVersion
	case resource.GuardCASOwner:
		return sameOwner
	}
	return func(*cell, operation) error { return nil }
}

// wantsVersion reports whether a guard checks the version that a write is based on.
func wantsVersion(guard string) bool {
	return guard == resource.GuardCASVersion || guard == resource.GuardFenceVersion
}

// fence refuses tokens lower than the highest it has seen.
func fence(c *cell, op operation) error {
	if op.Token == lock.NoToken {
		return resource.ErrNoToken
	}
	if op.Token < c.seen {
		return resource.Fenced(lock.Reason{Cause: lock.CauseTokenLower, Seen: uint64(c.seen)},
			"token %d is lower than %d", op.Token, c.seen)
	}
	c.seen = op.Token
	return nil
}

// fenceWrites passes every read.
func fenceWrites(c *cell, op operation) error {
	if op.kind == opRead {
		return nil
	}
	return fence(c, op)
}

// sameVersion refuses a write that is based on another version than the current one.
func sameVersion(c *cell, op operation) error {
	switch {
	case op.kind != opWrite:
		return nil
	case op.version == 0:
		return resource.Fenced(lock.Reason{Cause: lock.CauseVersionMissing}, "it wants the version that was read")
	case op.version != c.version():
		return resource.Fenced(lock.Reason{Cause: lock.CauseVersionChanged, Seen: uint64(op.version), N: c.version()},
			"version %d was read, but %d is current", op.version, c.version())
	}
	return nil
}

// sameOwner has reads register their owner, and refuses the writes of others.
func sameOwner(c *cell, op operation) error {
	switch {
	case op.Owner == "":
		return resource.Fenced(lock.Reason{Cause: lock.CauseOwnerMissing}, "it wants the grant's own name")
	case op.kind == opRead:
		c.owner = op.Owner
	case op.Owner != c.owner:
		return resource.Fenced(lock.Reason{Cause: lock.CauseOwnerChanged}, "another grant is registered, or none")
	}
	return nil
}
