package process

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// endedTargets are the targets whose processes were ended, or were to be.
type endedTargets struct {
	fate dataFate
	hits chaos.Hits[*endedTarget]
}

// endedTarget is one target and what was seen of its data.
type endedTarget struct {
	killable
	*dataSeen
	lingers bool // it was asked to end, and may do so yet
}

// departure is what came of one way to end a process, in the eyes of whoever did it.
type departure struct {
	status  history.ReceiptStatus // where the process is seen gone
	text    string
	lingers bool
}

// kill kills one target and sees that its process is gone.
func (v *endedTargets) kill(ctx context.Context, n killable) (history.Receipt, error) {
	return v.end(ctx, n, func(ctx context.Context) (departure, error) {
		_, err := n.Kill(ctx)
		return departure{status: history.Installed}, err
	})
}

// end has one target end and sees that its process is gone. A target that had none before was not ended by us, and is not ours to
// start again.
func (v *endedTargets) end(ctx context.Context, n killable, by func(context.Context) (departure, error)) (history.Receipt, error) {
	before, err := n.Inspect(ctx)
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	}
	if before.Gone() {
		return chaos.Seen(history.NotInstalled, before.Time, n.Name()+" had no process to end"), nil
	}
	book, err := openData(ctx, n, v.fate)
	if err != nil {
		return history.Receipt{}, err
	}
	one := &endedTarget{killable: n, dataSeen: book}
	v.hits.Note(one)
	end, failed := by(ctx)
	one.lingers = end.lingers
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
		alive = chaos.Seen(history.Indeterminate, after.Time, evidence+": another process took its place by itself")
	default:
		return book.settle(ctx, v.fate, chaos.Seen(end.status, after.Time, evidence))
	}
	return alive, errors.Join(failed, book.release(ctx))
}

// revive starts every such target again that can be, and sees that it serves.
func (v *endedTargets) revive(ctx context.Context, s chaos.Scope) (history.Receipt, error) {
	return v.hits.Heal(ctx, func(n *endedTarget) (history.Receipt, error) { return n.revived(ctx, s) })
}

// revived starts a target again and looks into its data directory once more.
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

// finish makes sure that a target that was asked to end, and has not, does not end of that when it is healed: it is killed.
func (v *endedTarget) finish(ctx context.Context) error {
	if !v.lingers {
		return nil
	}
	if _, err := v.Kill(ctx); err != nil {
		return fmt.Errorf("it was asked to end, and cannot be killed: %w", err)
	}
	return nil
}

// of finds what is known of a target.
func (v *endedTargets) of(n killable) *endedTarget {
	for _, one := range v.hits.List() {
		if one.Name() == n.Name() {
			return one
		}
	}
	return &endedTarget{killable: n, dataSeen: &dataSeen{}}
}
