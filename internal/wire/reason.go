package wire

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/lock"
)

// Because makes the event that gives the reason of e; ok is false where a history does not know the cause.
func Because(e *history.Event, r lock.Reason) (reason history.Event, ok bool) {
	code, ok := history.CauseOf(string(r.Cause))
	return history.Event{
		Kind: history.Reason, Phase: history.Info, Op: e.Op, User: e.User, Lock: e.Lock, Grant: e.Grant, Code: code,
		Token: r.Seen, Value: r.N,
	}, ok
}
