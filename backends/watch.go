package backends

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// HeldGrant is a grant as an adapter keeps it while its user has it in hand, for lock.Watcher.
type HeldGrant struct {
	// Validity returns how long the grant may be believed in, and a channel that is closed when that changes.
	// lock.Unknown is no news: what ended the validity will be told as a loss. nil: the validity never changes.
	Validity func() (lock.Validity, <-chan struct{})
	Lost     <-chan struct{} // closed when the grant is certainly lost, or nobody renews it any more
	Over     <-chan struct{} // closed when the user begins to give it back
}

// Watch tells of each change of the validity, beginning with one that differs from known, and of the loss, which is the
// last; then, or when the grant is given back or ctx ends, it closes the channel.
func (s HeldGrant) Watch(ctx context.Context, known lock.Validity) <-chan lock.Change {
	out := make(chan lock.Change, 1)
	go s.tell(ctx, known, out)
	return out
}

func (s HeldGrant) tell(ctx context.Context, known lock.Validity, out chan<- lock.Change) {
	defer close(out)
	for {
		valid, changed := known, (<-chan struct{})(nil)
		if s.Validity != nil {
			valid, changed = s.Validity()
		}
		c := lock.Change{At: time.Now(), ValidUntil: valid}
		if valid == known || valid == lock.Unknown() {
			select {
			case <-ctx.Done():
				return
			case <-s.Over:
				return
			case <-changed:
				continue
			case <-s.Lost:
				c = lock.Change{At: time.Now(), Lost: true}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.Over: // what comes after one's own release is no news
			return
		case out <- c:
		}
		if c.Lost {
			return
		}
		known = valid
	}
}

// Unwatched is what a Watcher returns for a grant that its user does not have.
func Unwatched() <-chan lock.Change {
	out := make(chan lock.Change)
	close(out)
	return out
}
