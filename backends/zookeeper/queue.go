package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/lock"
)

// queues are the locks that are queues of sequential nodes.
var queues = []string{"sequential", "herd"}

// points are announced by the lockers of this package's own recipes.
var points = []string{"before-create", "create-done", "lock-done", "before-delete", "delete-done"}

// recipe is a locker that creates its nodes itself.
type recipe struct {
	user
	// take returns the grant. With try it returns lock.ErrContended instead of waiting.
	take func(ctx context.Context, u *user, r lock.Request, try bool) (lock.Grant, error)
}

// Acquire waits for the lock.
func (c *recipe) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return c.take(ctx, &c.user, r, false)
}

// TryAcquire makes one attempt. A user that is not the first in a queue leaves it again.
func (c *recipe) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return c.take(ctx, &c.user, r, true)
}

// Release deletes the node.
func (c *recipe) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	if err := c.release(ctx, g, deleteNode); err != nil {
		return err
	}
	lock.At(ctx, "delete-done")
	return nil
}

func deleteNode(ctx context.Context, h *held) error { return remove(ctx, h.session, h.path) }

// Check looks for the node.
func (c *recipe) Check(ctx context.Context, g lock.Grant) error { return c.check(ctx, g) }

// watcher makes users queue with ephemeral sequential nodes. Queues differ in what a waiter watches. It returns nil
// if own is the first contender under path, otherwise a channel that says when to look again.
type watcher func(ctx context.Context, s *session, path, own string, try bool) (<-chan zk.Event, error)

// take joins the queue.
func (q watcher) take(ctx context.Context, u *user, r lock.Request, try bool) (lock.Grant, error) {
	s, err := u.begin(ctx, r, "before-create")
	if err != nil {
		return lock.Grant{}, err
	}
	path, made, err := u.join(ctx, s, r.Lock)
	if err != nil {
		return lock.Grant{}, err
	}
	lock.At(ctx, "create-done")
	if err := q.wait(ctx, s, path, try); err != nil {
		return lock.Grant{}, withdraw(ctx, s, path, err)
	}
	lock.At(ctx, "lock-done")
	return u.grant(r, made, &held{path: path, session: s}), nil
}

// join creates a node at the end of the queue.
func (u *user) join(ctx context.Context, s *session, name string) (path string, made creation, err error) {
	s.creating.Lock()
	defer s.creating.Unlock()
	before := s.created().number
	path, err = create(ctx, s, u.conn.keys().parent(name)+"/"+contender, zk.FlagEphemeralSequential)
	if err != nil {
		return "", made, u.failed(s, before, fmt.Errorf("zookeeper create: %w", err))
	}
	return path, s.created(), nil
}

// wait returns when the node is the first.
func (q watcher) wait(ctx context.Context, s *session, path string, try bool) error {
	i := strings.LastIndex(path, "/")
	for {
		events, err := q(ctx, s, path[:i], path[i+1:], try)
		if err != nil || events == nil {
			return err
		}
		if err := woken(ctx, s, events); err != nil {
			return err
		}
	}
}

// withdraw removes a waiter's node from the queue. It is certainly gone if the service says so. Otherwise the session
// is given up, and the node goes with it, at the latest when the session expires. So no waiter's node outlives its
// waiter by more than that.
func withdraw(ctx context.Context, s *session, path string, why error) error {
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
		switch {
		case errors.Is(why, lock.ErrContended):
			return why
		case ctx.Err() == nil: // the service said nothing about the lock
			return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, why)
		}
		return fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, why)
	}
	s.end(errGivenUp)
	return fmt.Errorf("zookeeper: gave up waiting (%w), and the node could not be taken back: %w", why, err)
}
