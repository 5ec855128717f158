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
	CauseSequencerEnded Cause = "sequencer-ended" // the lock service says that the sequencer of token Seen describes the lock no more
	CauseKeyGone        Cause = "key-gone"        // the key that was granted is gone, or another's
	CauseTooLate        Cause = "too-late"        // the validity was over N ns before all replies were in
	CauseWaitOver       Cause = "wait-over"       // the lock was held when it was asked for last, and the wait was given up after N ns
	CauseConditionFalse Cause = "condition-false" // the condition of the statement itself did not hold
	CauseKeyTaken       Cause = "key-taken"       // a row with that unique key is there already
	CauseAnsweredBy     Cause = "answered-by"     // of a grant: bit i of Seen is set where server i said yes, of N servers
)

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
