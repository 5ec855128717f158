package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// single is one ephemeral node of a fixed name. The user who creates it holds the lock; the others watch it and try
// again when it is gone. A release wakes all of them, and the quickest wins. A late release cannot delete another
// user's node, although the name is the same: the service does nothing for an expired session.
func single() backends.Lock {
	o := offers()
	o.Fair = false
	return backends.Lock{
		Name:     "single",
		Doc:      "One ephemeral node, created or awaited by an exists watch (the simple lock of Hunt et al., ZooKeeper, USENIX ATC 2010, 2.4); czxid as token.",
		Offers:   o,
		Points:   points,
		MinTTL:   minTTL,
		Recovery: backends.RecoveryBy(lockParams, recovery),
		Dial:     dialer(func(u user) lock.Locker { return &recipe{user: u, take: alone} }),
	}
}

// holderNode is the name of the one node.
const holderNode = "holder"

// alone creates the node, or waits until it is gone.
func alone(ctx context.Context, u *user, r lock.Request, try bool) (lock.Grant, error) {
	path := u.conn.keys().parent(r.Lock) + "/" + holderNode
	s, err := u.begin(ctx, r, "before-create")
	if err != nil {
		return lock.Grant{}, err
	}
	for {
		before := s.created().number
		_, err := create(ctx, s, path, zk.FlagEphemeral)
		if err == nil {
			break
		}
		if !errors.Is(err, zk.ErrNodeExists) {
			return lock.Grant{}, u.failed(s, before, fmt.Errorf("zookeeper create: %w", err))
		}
		if try {
			return lock.Grant{}, fmt.Errorf("%w: %w", lock.ErrContended, err)
		}
		if err := untilGone(ctx, s, path); err != nil {
			if ctx.Err() == nil { // the service said nothing about the lock
				return lock.Grant{}, fmt.Errorf("%w before it was granted: %w", lock.ErrLost, err)
			}
			// The node is another user's, and this user has at most a read pending.
			return lock.Grant{}, fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
		}
	}
	made := s.created()
	lock.At(ctx, "create-done")
	lock.At(ctx, "lock-done")
	return u.grant(r, made, &held{path: path, session: s}), nil
}

// untilGone returns when the node was seen to be gone.
func untilGone(ctx context.Context, s *session, path string) error {
	events, err := ask(ctx, s, func(c *zk.Conn) (<-chan zk.Event, error) {
		exists, _, events, err := c.ExistsW(path)
		if err == nil && !exists {
			return nil, nil
		}
		return events, err
	})
	if err != nil || events == nil {
		return err
	}
	return woken(ctx, s, events)
}
