package resource

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/lock"
)

// The names of the guards.
const (
	// GuardNone serves everybody.
	GuardNone = "none"
	// GuardFence refuses a read or write whose token is lower than the highest it has seen, or that has none.
	GuardFence = "fence"
	// GuardFenceWrites looks at writes only. It leaks: an old holder's write that arrives between a new holder's read
	// and its write passes, and is overwritten.
	GuardFenceWrites = "fence-writes"
	// GuardCASVersion refuses a write that was made from another version than the current one. Nothing is lost by
	// it, whatever the lock does. But it knows no order of holders, and refuses whoever comes second.
	GuardCASVersion = "cas-version"
	// GuardFenceVersion is GuardFenceWrites and GuardCASVersion at once: a write wants a token that is not older than
	// the last writer's, and the version that stands there.
	GuardFenceVersion = "fence-version"
	// GuardCASOwner has a read register the grant's own, random name. It refuses a write under any name but the one
	// registered last. It keeps no order: an old holder that registers late takes the place of the new one.
	GuardCASOwner = "cas-owner"
	// GuardCondition, of a store, applies the change that a write means (what it writes less what it has read)
	// to the current value, if the stock allows: UPDATE ... WHERE sold + change <= stock.
	GuardCondition = "condition"
	// GuardDecr counts before it looks, as DECR does: what the counter returned decides whether a unit was left.
	GuardDecr = "decr"
	// GuardUnique makes a write the insertion of a row whose key is the seat: the second one is refused.
	GuardUnique = "unique"
	// GuardCheckThenWrite is the fence in two steps. A writer first asks whether its token is good enough, and
	// writes when the answer was yes. What happens between the two steps is not seen.
	GuardCheckThenWrite = "check-then-write"
	// GuardSequencer asks the lock service whether the holder's sequencer still describes the lock. It is a fence
	// as well.
	GuardSequencer = "sequencer"
	// GuardAskThenWrite asks the lock service as GuardSequencer does, but keeps no token itself, and in two steps: a
	// writer asks whether its sequencer stands, and writes when the answer was yes. What happens between the two steps
	// is not seen.
	GuardAskThenWrite = "ask-then-write"
	// GuardLockKey is of a service that keeps the values beside the locks. The transaction of each access checks
	// that the very key that was granted is still there.
	GuardLockKey = "lock-key"
	// GuardIfMatch is of an object store. A write is conditional on the ETag that was read, or on there being no
	// object: it is GuardCASVersion as HTTP has it.
	GuardIfMatch = "if-match"
)

// PointTokenChecked is what a user announces with lock.At between the two steps of GuardCheckThenWrite and
// GuardAskThenWrite.
const PointTokenChecked = "token-checked"

// Fenced makes the error of a refusal with its reason.
func Fenced(r lock.Reason, format string, args ...any) error {
	return lock.Because(r, fmt.Errorf("%w: %s", ErrFenced, fmt.Sprintf(format, args...)))
}

// RefusalCode returns the code of a refused effect: whether the condition of a write was false, or the user was
// refused.
func RefusalCode(err error) uint8 {
	switch r, _ := lock.ReasonOf(err); r.Cause {
	case lock.CauseVersionChanged, lock.CauseConditionFalse, lock.CauseKeyTaken:
		return history.CodeConditional
	default:
		return history.CodeFenced
	}
}

// RecordReason records why an effect was refused, behind it.
func RecordReason(record func(*history.Event), e *history.Event, err error) {
	if r, told := lock.ReasonOf(err); told {
		if reason, known := wire.Because(e, r); known {
			record(&reason)
		}
	}
}

// ErrNoToken refuses an access without the token that a guard wants.
var ErrNoToken = Fenced(lock.Reason{Cause: lock.CauseTokenMissing}, "it wants a fencing token")
