package lock

import "errors"

// Cause is the name of a cause why something was refused, given up or not done. docs/history.md lists the facts of
// each.
type Cause string

// The causes. The side that decided records one: the guard of a resource, or a lock's adapter.
const (
	CauseTokenLower     Cause = "token-lower"     // Seen is a higher token that was seen before
	CauseTokenMissing   Cause = "token-missing"   // the guard wants a fencing token and got none
	CauseVersionChanged Cause = "version-changed" // the user read Seen, and the resource has N
	CauseVersionMissing Cause = "version-missing" // the user had read nothing
	CauseOwnerChanged   Cause = "owner-changed"   // another grant is registered, or none
	CauseOwnerMissing   Cause = "owner-missing"   // the grant has no name of its own
	// the lock service says that the sequencer with token Seen no longer describes the lock
	CauseSequencerEnded Cause = "sequencer-ended"
	CauseKeyGone        Cause = "key-gone" // the key of the grant is gone, or another grant's
	CauseTooLate        Cause = "too-late" // the validity had ended N ns before all replies were in
	// the lock was held at every answer of the service, and the wait was given up after N ns
	CauseWaitOver       Cause = "wait-over"
	CauseConditionFalse Cause = "condition-false" // the condition of the statement itself did not hold
	CauseKeyTaken       Cause = "key-taken"       // a row with that unique key exists already
	// of a grant: bit i of Seen is set if server i of N said yes
	CauseAnsweredBy Cause = "answered-by"
	// of a grant: its key's value is made of the time N, in ms since 1970, and the client's number Seen
	CauseOwnerValue Cause = "owner-value"
	// of the N servers asked, neither those that said yes nor those that said no were a majority: Seen is a Vote
	CauseNoMajority Cause = "no-majority"
	// within N ns too few replicas acknowledged the key: the low half of Seen did, the high half was required
	CauseNotReplicated Cause = "not-replicated"
	// the server rejects writes because it has heard of too few replicas lately
	CauseFewReplicas Cause = "few-replicas"
)

// Vote counts the servers' answers to one request. A Reason holds it as one number, a byte per count.
type Vote struct {
	Yes, No uint8
	Refused uint8 // answered with an error
	NotSent uint8 // could not be reached
	Silent  uint8 // were asked and did not answer
}

// Seen packs the vote into Reason.Seen.
func (v Vote) Seen() uint64 {
	return uint64(v.Yes) | uint64(v.No)<<8 | uint64(v.Refused)<<16 | uint64(v.NotSent)<<24 | uint64(v.Silent)<<32
}

// VoteOf unpacks the vote from Reason.Seen.
func VoteOf(seen uint64) Vote {
	return Vote{
		Yes: uint8(seen), No: uint8(seen >> 8), Refused: uint8(seen >> 16), NotSent: uint8(seen >> 24),
		Silent: uint8(seen >> 32),
	}
}

// Reason is a cause with its facts.
type Reason struct {
	Cause Cause
	Seen  uint64
	N     int64
}

// explained is an error with its reason.
type explained struct {
	error
	reason Reason
}

func (e explained) Unwrap() error { return e.error }

// Because adds a reason to an error. The error's text says the same in words.
func Because(r Reason, err error) error { return explained{err, r} }

// ReasonOf returns the reason of an error, as the side that decided gave it.
func ReasonOf(err error) (Reason, bool) {
	var e explained
	ok := errors.As(err, &e)
	return e.reason, ok
}
