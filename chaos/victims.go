package chaos

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/history"
)

// victims are the targets whose processes were ended, or were to be.
type victims struct {
	fate dataFate
	hits hits[*victim]
}

// victim is one target and what was seen of its data.
type victim struct {
	killable
	*ledger
	lingers bool // it was asked to end, and may do so yet
}

// departure is what came of one way to end a process, in the eyes of whoever did it.
type departure struct {
	status  history.ReceiptStatus // where the process is seen gone
	text    string
	lingers bool
}

// kill kills one target and sees that its process is gone.
func (v *victims) kill(ctx context.Context, n killable) (history.Receipt, error) {
	return v.end(ctx, n, func(ctx context.Context) (departure, error) {
		_, err := n.Kill(ctx)
		return departure{status: history.Installed}, err
	})
}

// end has one target end and sees that its process is gone. A target that had none before was not ended by us, and is not ours to
// start again.
func (v *victims) end(ctx context.Context, n killable, by func(context.Context) (departure, error)) (history.Receipt, error) {
	before, err := n.Inspect(ctx)
	if err != nil {
		return history.Receipt{}, fmt.Errorf("its state could not be read: %w", err)
	}
	if before.Gone() {
		return seen(history.NotInstalled, before.Time, n.Name()+" had no process to end"), nil
	}
	book, err := openLedger(ctx, n, v.fate)
	if err != nil {
		return history.Receipt{}, err
	}
	one := &victim{killable: n, ledger: book}
	v.hits.note(one)
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
		alive = seen(history.NotInstalled, after.Time, evidence+": it is still there")
	case !after.Gone():
		alive = seen(history.Indeterminate, after.Time, evidence+": another process took its place by itself")
	default:
		return book.settle(ctx, v.fate, seen(end.status, after.Time, evidence))
	}
	return alive, errors.Join(failed, book.release(ctx))
}

// revive starts every victim again that can be, and sees that it serves.
func (v *victims) revive(ctx context.Context, s Scope) (history.Receipt, error) {
	return v.hits.heal(ctx, func(n *victim) (history.Receipt, error) { return n.revived(ctx, s) })
}

// revived starts a victim again and looks into its data directory once more.
func (v *victim) revived(ctx context.Context, s Scope) (history.Receipt, error) {
	if err := v.finish(ctx); err != nil {
		return history.Receipt{}, err
	}
	r, err := revived(ctx, v.killable, s)
	if err == nil {
		r = v.again(ctx, v.killable, r)
	}
	return r, err
}

// finish makes sure that a victim that was asked to end, and has not, does not end of that when it is healed: it is killed.
func (v *victim) finish(ctx context.Context) error {
	if !v.lingers {
		return nil
	}
	if _, err := v.Kill(ctx); err != nil {
		return fmt.Errorf("it was asked to end, and cannot be killed: %w", err)
	}
	return nil
}

// of finds the victim that a target became.
func (v *victims) of(n killable) *victim {
	for _, one := range v.hits.list() {
		if one.Name() == n.Name() {
			return one
		}
	}
	return &victim{killable: n, ledger: &ledger{}}
}
