package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// endedTargets are the targets whose processes were, or should have been, ended.
type endedTargets struct {
	data dataOption
	hits chaos.Hits[*endedTarget]
}

// endedTarget is one target and what was seen of its data.
type endedTarget struct {
	killable
	*dataSeen
	mayYetEnd bool // it was asked to end, and may still do so
}

// endResult is the result of a stop request or a kill.
type endResult struct {
	status    history.ReceiptStatus // if the process is seen gone
	text      string
	mayYetEnd bool
	sent      int64 // ns: just before the signal
	gone      int64 // ns: when it was first seen gone; 0 if that was not seen before it was reaped
}

// kill kills one target and checks that its process is gone.
func (v *endedTargets) kill(ctx context.Context, n killable) (history.Receipt, error) {
	return v.end(ctx, n, func(ctx context.Context) (endResult, error) {
		s, err := n.Kill(ctx)
		return endResult{status: history.Installed, sent: s.Sent, gone: s.Time}, err
	})
}

// end ends one target and checks that its process is gone. A target that had no process before is left alone, by the
// heal too.
func (v *endedTargets) end(ctx context.Context, n killable,
	by func(context.Context) (endResult, error),
) (history.Receipt, error) {
	before, none, err := chaos.Before(ctx, n, "to end")
	if err != nil || before.Gone() {
		return none, err
	}
	dir, err := openData(ctx, n, v.data)
	if err != nil {
		return history.Receipt{}, err
	}
	one := &endedTarget{killable: n, dataSeen: dir}
	v.hits.Note(one)
	end, failed := by(ctx)
	one.mayYetEnd = end.mayYetEnd
	after, err := n.Inspect(ctx)
	evidence := fmt.Sprintf("%s: before %s, after %s", n.Name(), before, after)
	if end.text != "" {
		evidence += ": " + end.text
	}
	var alive history.Receipt
	switch {
	case failed != nil:
		alive = history.Receipt{Time: after.Time, Evidence: evidence}
	case err != nil:
		failed = fmt.Errorf("its state could not be read: %w", err)
	case !after.Gone() && after.PID == before.PID:
		alive = chaos.Seen(history.NotInstalled, after.Time, evidence+": it is still there")
	case !after.Gone():
		alive = chaos.Seen(history.Indeterminate, after.Time, evidence+": another process replaced it")
	default:
		r := chaos.Seen(end.status, cmp.Or(end.gone, after.Time), evidence) // an engine may take a second to reap it
		r.Sent = end.sent
		return dir.settle(ctx, v.data, r)
	}
	return alive, errors.Join(failed, dir.release(ctx))
}

// revive restarts all targets that can be restarted, and checks that they serve.
func (v *endedTargets) revive(ctx context.Context, s chaos.Scope) (history.Receipt, error) {
	return v.hits.Heal(ctx, func(n *endedTarget) (history.Receipt, error) { return n.revived(ctx, s) })
}

// revived restarts a target and checks its data directory once more.
func (v *endedTarget) revived(ctx context.Context, s chaos.Scope) (history.Receipt, error) {
	if err := v.finish(ctx); err != nil {
		return history.Receipt{}, err
	}
	r, err := chaos.Revive(ctx, v.killable, s)
	if err == nil {
		r = v.again(ctx, v.killable, r)
	}
	return r, err
}

// finish kills a target that was asked to end and has not: otherwise it could end after the heal.
func (v *endedTarget) finish(ctx context.Context) error {
	if !v.mayYetEnd {
		return nil
	}
	if _, err := v.Kill(ctx); err != nil {
		return fmt.Errorf("it did not stop on request, and cannot be killed: %w", err)
	}
	return nil
}

// of returns the entry of a target.
func (v *endedTargets) of(n killable) *endedTarget {
	for _, one := range v.hits.List() {
		if one.Name() == n.Name() {
			return one
		}
	}
	return &endedTarget{killable: n, dataSeen: &dataSeen{}}
}
