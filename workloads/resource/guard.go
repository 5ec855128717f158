package resource

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// The names of the guards.
const (
	// GuardNone serves every access.
	GuardNone = "none"
	// GuardFence refuses a read or write without a token, or whose token is lower than the highest it has seen.
	GuardFence = "fence"
	// GuardFenceWrites checks writes only. It leaks: an old holder's write between a new holder's read and write
	// passes, and is overwritten.
	GuardFenceWrites = "fence-writes"
	// GuardCASVersion refuses a write made from another version than the current one. No update is lost, whatever the
	// lock does. But it knows no order of holders, and refuses whichever comes second.
	GuardCASVersion = "cas-version"
	// GuardFenceVersion combines GuardFenceWrites and GuardCASVersion: a write needs a token not older than the last
	// writer's, and the current version.
	GuardFenceVersion = "fence-version"
	// GuardCASOwner has a read register the grant's own, random name. It refuses a write under any other name than
	// the last registered one. It keeps no order: an old holder that registers late replaces the new one.
	GuardCASOwner = "cas-owner"
	// GuardCondition, of a store, applies the change of a write (the value written less the value read) to the
	// current value, if the stock allows: UPDATE ... WHERE sold + change <= stock.
	GuardCondition = "condition"
	// GuardDecr counts before it checks, as DECR does: the counter's result decides whether a unit was left.
	GuardDecr = "decr"
	// GuardUnique turns a write into the insertion of a row whose key is the seat: the second insertion is refused.
	GuardUnique = "unique"
	// GuardCheckThenWrite is the fence in two steps. A writer first asks whether its token is good enough, and writes
	// after a yes. Changes between the two steps go unnoticed.
	GuardCheckThenWrite = "check-then-write"
	// GuardSequencer asks the lock service whether the holder's sequencer is still valid. It is a fence as well.
	GuardSequencer = "sequencer"
	// GuardAskThenWrite asks the lock service as GuardSequencer does, but keeps no token and has two steps. A writer
	// asks whether its sequencer is valid, and writes after a yes. Changes between the two steps go unnoticed.
	GuardAskThenWrite = "ask-then-write"
	// GuardLockKey needs a service that keeps the values beside the locks. The transaction of each access checks that
	// the granted key still exists.
	GuardLockKey = "lock-key"
	// GuardIfMatch is the guard of an object store: GuardCASVersion over HTTP. A write is conditional on the ETag
	// that was read, or on the absence of an object.
	GuardIfMatch = "if-match"
)

// PointTokenChecked is the point between the two steps of GuardCheckThenWrite and GuardAskThenWrite. A user announces
// it with lock.At.
const PointTokenChecked = "token-checked"

// Fenced returns the error of a refusal with its reason.
func Fenced(r lock.Reason, format string, args ...any) error {
	return lock.Because(r, fmt.Errorf("%w: %s", ErrFenced, fmt.Sprintf(format, args...)))
}

// RefusalCode returns the code of a refused effect. It distinguishes a false condition of the write from a refusal of
// the user.
func RefusalCode(err error) uint8 {
	switch r, _ := lock.ReasonOf(err); r.Cause {
	case lock.CauseVersionChanged, lock.CauseConditionFalse, lock.CauseKeyTaken:
		return history.CodeConditional
	default:
		return history.CodeFenced
	}
}

// RecordReason records, after the effect, why it was refused.
func RecordReason(record func(*history.Event), e *history.Event, err error) {
	if r, told := lock.ReasonOf(err); told {
		if reason, known := wire.Because(e, r); known {
			record(&reason)
		}
	}
}

// ErrNoToken is the refusal of an access without the token that a guard needs.
var ErrNoToken = Fenced(lock.Reason{Cause: lock.CauseTokenMissing}, "it wants a fencing token")
