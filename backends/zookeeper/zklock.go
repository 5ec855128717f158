package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// zkLock is Lock of github.com/go-zookeeper/zk. The library knows no context, does not reveal its node, and retries
// by itself when the reply to a create was lost (with a GUID in the node's name). So the adapter has three limits:
//   - It cannot leave the library's queue. Giving up a wait closes the session and with it everything else that
//     the user holds; the next acquire opens a new one.
//   - After a lost reply it cannot know whether a grant is the first request's or the second's. Such a grant is
//     given up and reported as unknown.
//   - It cannot ask whether a grant is still there (no lock.Checker).
func zkLock() backends.Lock {
	o := offers()
	o.Try = false
	return backends.Lock{
		Name:     "zk-lock",
		Doc:      "Lock of github.com/go-zookeeper/zk v1.0.4. A wait that is given up closes the user's session, because the library's Lock takes no context.",
		Offers:   o,
		Points:   []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		MinTTL:   minTTL,
		Recovery: backends.RecoveryBy(lockParams, recovery),
		Dial:     dialer(func(u user) lock.Locker { return &library{user: u} }),
	}
}

// library is a locker with the library's lock.
type library struct{ user }

// errAgain means that the library retried without its caller's knowledge.
var errAgain = errors.New("a reply was lost before the grant, and the library retried")

// Acquire waits in the library's queue.
func (l *library) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	s, err := l.begin(ctx, r, "before-lock")
	if err != nil {
		return lock.Grant{}, err
	}
	before, lost := s.created().number, s.losses()
	m := zk.NewLock(s.conn, l.conn.keys().parent(r.Lock), access(s.set.login))
	_, err = await(ctx, s, func() (struct{}, error) { return struct{}{}, m.Lock() })
	made := s.created()
	switch {
	case err != nil && ctx.Err() != nil && s.reason() == nil:
		if s.leave() == nil {
			return lock.Grant{}, fmt.Errorf("%w; gave up waiting, and the session: %w", lock.ErrContended, err)
		}
		return lock.Grant{}, l.failed(s, before, fmt.Errorf("zk lock: %w", err))
	case err != nil:
		return lock.Grant{}, l.failed(s, before, fmt.Errorf("zk lock: %w", err))
	case s.losses() != lost:
		s.end(errGivenUp)
		return lock.Grant{}, fmt.Errorf("zk lock: %w", errAgain)
	}
	lock.At(ctx, "lock-done")
	return l.grant(r, made, &held{library: m, session: s}), nil
}

// Release deletes the node.
func (l *library) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-unlock")
	err := l.release(ctx, g, func(ctx context.Context, h *held) error {
		_, err := ask(ctx, h.session, func(*zk.Conn) (struct{}, error) { return struct{}{}, h.library.Unlock() })
		return err
	})
	if err != nil {
		return err
	}
	lock.At(ctx, "unlock-done")
	return nil
}
