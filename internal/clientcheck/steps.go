package clientcheck

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/wire"
)

// step is an order and what is wanted of its result.
type step struct {
	what  string
	order wire.Command
	want  string // "": anything
	value int64  // of a read; 0: anything

	needs  string       // the order that the client must take beside its own
	invoke history.Kind // the invoke that carries the deadline by the order's timeout; 0: none
}

// contention is what two users are ordered in command mode.
var contention = []step{
	{what: "a release without a hold", order: wire.Command{Do: wire.DoRelease}, want: wire.OutcomeFail},
	{what: "an acquire", order: wire.Command{Do: wire.DoAcquire}, want: wire.OutcomeOK},
	{
		what: "a renewal of it, which its hello names among orders", order: wire.Command{Do: wire.DoRenew},
		want: wire.OutcomeOK, invoke: history.Renew,
	},
	{
		what: "a check of it, which its hello names among orders", order: wire.Command{Do: wire.DoCheck},
		want: wire.OutcomeOK,
	},
	{what: "a second acquire of the same user", order: wire.Command{Do: wire.DoAcquire}, want: wire.OutcomeFail},
	{
		what: "a re-entry, which its hello names among orders", order: wire.Command{Do: wire.DoReenter},
		want: wire.OutcomeOK, invoke: history.Reenter,
	},
	{
		what: "a release of the re-entry", order: wire.Command{Do: wire.DoRelease}, want: wire.OutcomeOK,
		needs: wire.DoReenter, invoke: history.Leave,
	},
	{what: "a write", order: wire.Command{Do: wire.DoWrite, Value: 7}, want: wire.OutcomeOK},
	{what: "a read", order: wire.Command{Do: wire.DoRead}, want: wire.OutcomeOK, value: 7},
	{what: "an acquire of another lock", order: wire.Command{Do: wire.DoAcquire, Lock: 1}, want: wire.OutcomeOK},
	{
		what: "a release of that lock", order: wire.Command{Do: wire.DoRelease, Lock: 1}, want: wire.OutcomeOK,
		invoke: history.Release,
	},
	{
		what:  "an acquire of another user, for 300 ms",
		order: wire.Command{Do: wire.DoAcquire, User: 1, Timeout: int64(300 * time.Millisecond)}, want: notOK,
	},
	{
		what: "a release-unheld of a user that has the lock in hand", order: wire.Command{Do: wire.DoReleaseUnheld},
		want: wire.OutcomeFail,
	},
	{what: "a release", order: wire.Command{Do: wire.DoRelease}, want: wire.OutcomeOK, invoke: history.Release},
	{
		what: "a release-unheld, which its hello names among orders", order: wire.Command{Do: wire.DoReleaseUnheld},
		invoke: history.ReleaseUnheld,
	},
	{what: "an acquire of another user", order: wire.Command{Do: wire.DoAcquire, User: 1}},
	{what: "a re-entry of that user, which the stop ends", order: wire.Command{Do: wire.DoReenter, User: 1}},
	{what: "an unknown order", order: wire.Command{Do: "dance"}, want: wire.OutcomeFail},
	{
		what:  "an order for an unknown lock",
		order: wire.Command{Do: wire.DoAcquire, User: 2, Lock: 99}, want: wire.OutcomeFail,
	},
}

// notOK is what a step wants whose order must not be granted: it fails, or its outcome is unknown.
const notOK = "not ok"

// carry gives the order of a step, and records what is wrong with its result. The first step began at from.
func (c *client) carry(ctx context.Context, s step, from int64) error {
	if s.invoke != 0 {
		s.order.Timeout = int64(time.Minute)
	}
	r, err := c.ask(ctx, s.order)
	if err != nil {
		return fmt.Errorf("%s: %w", s.what, err)
	}
	wrong := ""
	switch {
	case s.want == notOK && r.Outcome == wire.OutcomeOK:
		wrong = "while others had it: result: outcome is ok: the lock excludes nobody"
	case s.want != "" && s.want != notOK && r.Outcome != s.want:
		wrong = fmt.Sprintf("result: outcome is %q (%s): want %s", r.Outcome, r.Error, s.want)
	case s.value != 0 && r.Value != s.value:
		wrong = fmt.Sprintf("result: value is %d: want %d", r.Value, s.value)
	}
	if took := now() - from; wrong != "" && c.start.TTL > 0 && took > c.start.TTL {
		return fmt.Errorf("%s: %s; but the orders took %v so far, and the TTL of a grant is %v: repeat it on a machine with less load",
			s.what, wrong, time.Duration(took), time.Duration(c.start.TTL))
	}
	left := c.record.left(s.invoke)
	if s.invoke != 0 && r.Outcome == wire.OutcomeOK && (left > time.Minute || left < 30*time.Second) {
		c.wrong("%s: event %v invoke: valid is %v after the event: want the deadline by timeout_ns of the order, %v",
			s.what, s.invoke, left, time.Minute)
	}
	if wrong != "" {
		c.wrong("%s: %s", s.what, wrong)
	}
	return nil
}

// carryAll carries out the steps whose orders the client takes.
func (c *client) carryAll(ctx context.Context, steps []step) error {
	from := now()
	for _, s := range steps {
		if !c.hello.Takes(s.order.Do) || !c.hello.Takes(s.needs) {
			continue
		}
		if err := c.carry(ctx, s, from); err != nil {
			return err
		}
	}
	return nil
}

// sharing is what three users are ordered where a lock has two permits.
var sharing = []step{
	{what: "an acquire", order: wire.Command{Do: wire.DoAcquire}, want: wire.OutcomeOK},
	{what: "an acquire of a second user", order: wire.Command{Do: wire.DoAcquire, User: 1}, want: wire.OutcomeOK},
	{
		what:  "an acquire of a third user of two permits, for 300 ms",
		order: wire.Command{Do: wire.DoAcquire, User: 2, Timeout: int64(300 * time.Millisecond)}, want: notOK,
	},
	{what: "a release", order: wire.Command{Do: wire.DoRelease}, want: wire.OutcomeOK},
	{
		what: "an acquire of the third user, behind that release", order: wire.Command{Do: wire.DoAcquire, User: 2},
		want: wire.OutcomeOK,
	},
}

// closing is what a user is ordered that closes its lock object after a re-entry.
var closing = []step{
	{
		what: "an acquire", order: wire.Command{Do: wire.DoAcquire, User: 2, Lock: 1}, want: wire.OutcomeOK,
		needs: wire.DoReenter,
	},
	{what: "a re-entry", order: wire.Command{Do: wire.DoReenter, User: 2, Lock: 1}, want: wire.OutcomeOK},
	{
		what: "a close after a re-entry", order: wire.Command{Do: wire.DoClose, User: 2}, want: wire.OutcomeOK,
		needs: wire.DoReenter,
	},
}
