package backends

import (
	"context"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// HeldGrant is an adapter's record, for lock.Watcher, of a grant that its user holds.
type HeldGrant struct {
	// Validity returns how long the grant may be believed in, and a channel that is closed when that changes.
	// lock.Unknown is not reported: what ended the validity will be reported as a loss. A nil func means that the
	// validity never changes.
	Validity func() (lock.Validity, <-chan struct{})
	Lost     <-chan struct{} // closed when the grant is certainly lost, or is not renewed any more
	Over     <-chan struct{} // closed when the user begins to give it back
}

// Watch reports each change of the validity, beginning with the first that differs from known. A loss is the last
// report. It closes the channel after a loss, when the grant is given back, or when ctx ends.
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
		case <-s.Over: // changes after one's own release are not reported
			return
		case out <- c:
		}
		if c.Lost {
			return
		}
		known = valid
	}
}

// Unwatched is what a Watcher returns for a grant that its user does not hold.
func Unwatched() <-chan lock.Change {
	out := make(chan lock.Change)
	close(out)
	return out
}
