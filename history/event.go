// Package history is what happened in a run: the events of every process on one monotonic base, and the faults with
// their receipts. It knows their binary file, their JSON Lines form and how files are merged by time; it depends on
// nothing but the standard library, so that a run can be read by any other program.
package history

import (
	"fmt"
	"math"
	"slices"
)

// Kind says what an event is about.
type Kind uint8

// The kinds of events. Acquire, Release, Renew, Check, Read, Write, Close, Reenter, Leave and ReleaseUnheld are
// operations with an invoke and an outcome; the others stand alone, mostly with phase Info.
const (
	KindNone    Kind = iota
	Acquire          // a user asks for a lock
	Release          // a user gives a lock back
	Renew            // a user asks for more time
	Check            // a user asks the service whether its grant still stands
	Read             // a user reads from the protected resource
	Write            // a user writes to the protected resource
	Renewed          // the client learned of a later end of validity
	Lost             // the client learned that the grant is gone
	Dead             // the engine saw the user's process dead; Value is when it was certainly alive for the last time
	EffectRead       // the resource served a read (Ok), or refused it (Fail)
	EffectWrite      // the resource applied a write (Ok), or refused it (Fail)
	Stall            // a process did not run for Value nanoseconds up to Time
	Dropped          // a process dropped Value events for want of room
	Final            // the final read of the resource: Lock, Value; Valid holds the number of applied writes
	Clean            // the trailer of a file that was closed in order; Value is the number of events before it
	// of a grant without an end: Valid, which is also the event's Time, is when the service last certainly had its
	// session; dated back by the engine
	Ended
	// why what is told at Op came about, by whoever decided: Code is the cause, Token and Value its facts
	Reason
	Cancel // a user was told to give up the operation Op, which is under way
	Close  // a user closes its lock object, with all that it holds
	// a user takes a lock that it has in hand once more: its hold goes on, by the validity of the new answer
	Reenter
	Leave // a user gives back the latest of its re-entries: its hold goes on
	// a user releases a lock that it does not have: never granted, or given back before
	ReleaseUnheld
	kindEnd
)

var kindNames = [...]string{
	"none", "acquire", "release", "renew", "check", "read", "write", "renewed", "lost", "dead",
	"effect-read", "effect-write", "stall", "dropped", "final", "clean", "ended", "reason", "cancel", "close",
	"reenter", "leave", "release-unheld",
}

// String returns the kind's name in the JSON Lines form.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// Known tells whether k is one of the kinds above.
func (k Kind) Known() bool { return k > KindNone && k < kindEnd }

// Phase is the part of an operation that an event records.
type Phase uint8

// The phases. Info means that nobody knows whether it was done.
const (
	PhaseNone Phase = iota
	Invoke          // the operation begins
	Ok              // it was done
	Fail            // it was certainly not done
	Info            // nobody knows; or the event is not part of an operation
	phaseEnd
)

var phaseNames = [...]string{"none", "invoke", "ok", "fail", "info"}

// String returns the phase's name in the JSON Lines form.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return fmt.Sprintf("phase-%d", uint8(p))
}

// Known tells whether p is one of the phases above.
func (p Phase) Known() bool { return p > PhaseNone && p < phaseEnd }

// Values of Event.Valid that are not times.
const (
	ValidEndless int64 = math.MaxInt64 // the service named no end
	ValidUnknown int64 = math.MinInt64 // nothing is known: not entitled
)

// User names one user of one client: the client's index in the run and the user's number within it.
type User uint32

// MakeUser returns the user with that number (from 0) within the client with that index (from 0).
func MakeUser(client, user int) User { return User(uint32(client)<<16 | uint32(user)&0xffff) }

// Client returns the index of the user's client.
func (u User) Client() int { return int(u >> 16) }

// Index returns the user's number within its client.
func (u User) Index() int { return int(u & 0xffff) }

// String returns "client-3/17" for user 17 of the client with index 2: clients are named from 1.
func (u User) String() string { return fmt.Sprintf("client-%d/%d", u.Client()+1, u.Index()) }

// Event is one thing that happened. All times are nanoseconds of the host's CLOCK_MONOTONIC.
type Event struct {
	Time  int64  // when
	Seq   uint32 // position among the events of its process, from 1
	Op    uint32 // Seq of the invoke of the operation that this belongs to
	User  User   // whose
	Grant uint32 // Op of the acquire that gave the hold this belongs to; 0 for none
	Lock  uint16 // number of the lock, named by the file's table
	Kind  Kind   // about what
	Phase Phase  // which part of it
	Mode  uint8  // 0 exclusive, 1 shared
	// for Fail and Info: an error class of this package; of a Reason: a cause; of an EffectWrite: CodeConditional, too
	Code uint8
	// of the outcome of an Acquire: how many attempts it made, the one that was granted included; 0: it is not known
	Tries uint32
	Token uint64 // fencing token, 0 for none
	// end of the validity: a time, ValidEndless or ValidUnknown; of an invoke: the deadline of the call, 0 where none
	// was told
	Valid int64
	Value int64 // Acquire invoke: intended start (0: closed loop); Acquire ok: issued; Read, Write, Effect*: the value
}

// Error classes for Event.Code.
const (
	CodeNone        uint8 = iota
	CodeContended         // somebody else holds the lock
	CodeNotHeld           // the service does not have the grant
	CodeLost              // the grant was lost
	CodeTimeout           // a deadline passed
	CodeConnection        // the connection broke or could not be made
	CodeFenced            // the resource refused the user: its token, its name, or what the lock service says of it
	CodeCancelled         // the client was told to stop
	CodeUnavailable       // the service answered that it cannot serve
	CodeOther             // anything else
	codeClasses
)

// Causes for Event.Code of a Reason; docs/history.md lists the facts of each.
const (
	CauseTokenLower uint8 = codeClasses + iota
	CauseTokenMissing
	CauseVersionChanged
	CauseVersionMissing
	CauseOwnerChanged
	CauseOwnerMissing
	CauseSequencerEnded
	CauseKeyGone
	CauseTooLate
	CauseWaitOver
	CauseAnsweredBy
	CauseConditionFalse
	CauseKeyTaken
	// CodeConditional is of the effect of a write. Ok: what its writer had read was compared in the same step, or did
	// not matter. Fail: the condition was false, as after another's write.
	CodeConditional
	CauseNoMajority // causes of later releases follow here: a number once given stays
	CauseNotReplicated
	CauseFewReplicas
	CauseOwnerValue
	codeEnd
)

var codeNames = [...]string{
	"", "contended", "not-held", "lost", "timeout", "connection", "fenced", "cancelled", "unavailable", "other",
	"token-lower", "token-missing", "version-changed", "version-missing", "owner-changed", "owner-missing",
	"sequencer-ended", "key-gone",
	"too-late", "wait-over", "answered-by", "condition-false", "key-taken",
	"conditional", "no-majority", "not-replicated", "few-replicas", "owner-value",
}

// isCause reports whether a code is a cause of a Reason.
func isCause(c uint8) bool { return c >= codeClasses && c < codeEnd && c != CodeConditional }

// CauseOf returns the number of a cause by its name.
func CauseOf(name string) (uint8, bool) {
	i := max(slices.Index(codeNames[:], name), 0)
	return uint8(i), isCause(uint8(i))
}

// CodeName returns the name of an error class or a cause in the JSON Lines form.
func CodeName(c uint8) string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return fmt.Sprintf("code-%d", c)
}
