package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/lock"
)

// points are what the lockers of this package's own recipes announce.
var points = []string{"before-create", "create-done", "lock-done", "before-delete", "delete-done"}

// queued is a locker whose users stand in a queue of ephemeral sequential nodes; what a waiter watches is the difference
// between them.
type queued struct {
	user
	// watch returns nil when own is the first contender under path, else what tells when to look again. With try it
	// answers lock.ErrContended instead of waiting.
	watch func(ctx context.Context, s *session, path, own string, try bool) (<-chan zk.Event, error)
}

// Acquire waits in the queue.
func (q *queued) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return q.acquire(ctx, r, false)
}

// TryAcquire joins the queue and leaves it again unless it is the first.
func (q *queued) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return q.acquire(ctx, r, true)
}

func (q *queued) acquire(ctx context.Context, r lock.Request, try bool) (lock.Grant, error) {
	s, err := q.begin(ctx, r, "before-create")
	if err != nil {
		return lock.Grant{}, err
	}
	before := s.created().number
	path, err := create(ctx, s, parent(r.Lock)+"/"+contender, zk.FlagEphemeralSequential)
	if err != nil {
		return lock.Grant{}, q.failed(s, before, fmt.Errorf("zookeeper create: %w", err))
	}
	made := s.created()
	lock.At(ctx, "create-done")
	if err := q.wait(ctx, s, path, try); err != nil {
		return lock.Grant{}, q.withdraw(ctx, s, path, err)
	}
	lock.At(ctx, "lock-done")
	return q.grant(r, made, &held{path: path, session: s}), nil
}

// wait returns when the node is the first.
func (q *queued) wait(ctx context.Context, s *session, path string, try bool) error {
	i := strings.LastIndex(path, "/")
	for {
		events, err := q.watch(ctx, s, path[:i], path[i+1:], try)
		if err != nil || events == nil {
			return err
		}
		if err := woken(ctx, s, events); err != nil {
			return err
		}
	}
}

// withdraw takes the node of a waiter out of the queue. That it is gone is certain when the service says so; else the
// session is given up, and the node goes with it, at the latest when the session expires. So no waiter's node outlives
// its waiter by more than that.
func (q *queued) withdraw(ctx context.Context, s *session, path string, why error) error {
	if errors.Is(why, zk.ErrSessionExpired) || errors.Is(why, errExpired) {
		s.end(errExpired)
		return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, why)
	}
	if errors.Is(why, errGone) {
		return why
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := remove(bounded, s, path)
	switch {
	case err == nil, errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrSessionExpired), errors.Is(err, errExpired):
		if errors.Is(why, lock.ErrContended) {
			return why
		}
		return fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, why)
	}
	s.end(errGivenUp)
	return fmt.Errorf("zookeeper: gave up waiting (%w), and the node could not be taken back: %w", why, err)
}

// Release deletes the node.
func (q *queued) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	if err := q.release(ctx, g, deleteNode); err != nil {
		return err
	}
	lock.At(ctx, "delete-done")
	return nil
}

func deleteNode(ctx context.Context, h *held) error { return remove(ctx, h.session, h.path) }

// Check asks for the node.
func (q *queued) Check(ctx context.Context, g lock.Grant) error { return q.check(ctx, g) }
