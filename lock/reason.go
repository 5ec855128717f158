package lock

import "errors"

// Cause names why something was refused, given up or not done. docs/history.md lists the facts of each.
type Cause string

// The causes. Whoever decided records one: the guard of a resource, or a lock's adapter.
const (
	CauseTokenLower     Cause = "token-lower"     // a higher token was seen before: Seen is that
	CauseTokenMissing   Cause = "token-missing"   // the guard wants a fencing token, and there was none
	CauseVersionChanged Cause = "version-changed" // Seen was read, and N stands there
	CauseVersionMissing Cause = "version-missing" // nothing was read
	CauseOwnerChanged   Cause = "owner-changed"   // another grant is registered, or none
	CauseOwnerMissing   Cause = "owner-missing"   // the grant has no name of its own
	// the lock service says that the sequencer of token Seen describes the lock no more
	CauseSequencerEnded Cause = "sequencer-ended"
	CauseKeyGone        Cause = "key-gone" // the key that was granted is gone, or another's
	CauseTooLate        Cause = "too-late" // the validity was over N ns before all replies were in
	// the lock was held whenever the service answered, and the wait was given up after N ns
	CauseWaitOver       Cause = "wait-over"
	CauseConditionFalse Cause = "condition-false" // the condition of the statement itself did not hold
	CauseKeyTaken       Cause = "key-taken"       // a row with that unique key is there already
	// of a grant: bit i of Seen is set where server i said yes, of N servers
	CauseAnsweredBy Cause = "answered-by"
	// of a grant: the value at its key is made of the time N, in ms since 1970, and the client's number Seen
	CauseOwnerValue Cause = "owner-value"
	// of N servers that were asked, neither those that said yes nor those that said no were a majority: Seen is a Vote
	CauseNoMajority Cause = "no-majority"
	// within N ns, the low half of Seen was how many replicas acknowledged the key, of as many as the high half
	CauseNotReplicated Cause = "not-replicated"
	// the server takes no write, for it has heard of too few replicas lately
	CauseFewReplicas Cause = "few-replicas"
)

// Vote is how many servers answered what to one request. A Reason holds it as one number, a byte each.
type Vote struct {
	Yes, No uint8
	Refused uint8 // answered with an error
	NotSent uint8 // were not reached
	Silent  uint8 // were asked, and did not answer
}

// Seen is the vote as Reason.Seen has it.
func (v Vote) Seen() uint64 {
	return uint64(v.Yes) | uint64(v.No)<<8 | uint64(v.Refused)<<16 | uint64(v.NotSent)<<24 | uint64(v.Silent)<<32
}

// VoteOf is the vote that Reason.Seen holds.
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

// Because adds a reason to an error, whose text says the same for people.
func Because(r Reason, err error) error { return explained{err, r} }

// ReasonOf returns the reason of an error, as whoever decided gave it.
func ReasonOf(err error) (Reason, bool) {
	var e explained
	ok := errors.As(err, &e)
	return e.reason, ok
}
