package wire

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
)

// Because returns the event with the reason for e. ok is false if a history has no code for the cause.
func Because(e *history.Event, r lock.Reason) (reason history.Event, ok bool) {
	code, ok := history.CauseOf(string(r.Cause))
	return history.Event{
		Kind: history.Reason, Phase: history.Info, Op: e.Op, User: e.User, Lock: e.Lock, Grant: e.Grant, Code: code,
		Token: r.Seen, Value: r.N,
	}, ok
}
