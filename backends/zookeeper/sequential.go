package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// sequential is the recipe of ZooKeeper's documentation ("ZooKeeper Recipes and Solutions", Locks). Each contender
// has an ephemeral node, numbered by the server. The lowest holds the lock; each other one watches the node before
// its own, so that a release wakes one waiter. It adds to the recipe:
//   - it obeys a context, and each user has its own session
//   - a request without an answer ends the session instead of being sent again; so a node whose create was not
//     answered goes with its session, and the recipe's GUID, for finding it again, is not needed
//   - the transaction that created the node is the fencing token
func sequential() backends.Lock {
	return backends.Lock{
		Name:     "sequential",
		Doc:      "Ephemeral sequential nodes; each waiter watches the previous one (ZooKeeper's recipe for locks); czxid as token.",
		Offers:   offers(),
		Points:   points,
		MinTTL:   minTTL,
		Recovery: backends.RecoveryBy(lockParams, recovery),
		Dial:     dialer(func(u user) lock.Locker { return &recipe{user: u, take: watcher(watchAhead).take} }),
	}
}

// watchAhead watches the contender just before own. It reads data instead of checking existence: a watch on a missing
// node would stay for ever.
func watchAhead(ctx context.Context, s *session, path, own string, try bool) (<-chan zk.Event, error) {
	for {
		nodes, err := ask(ctx, s, func(c *zk.Conn) ([]string, error) {
			nodes, _, err := c.Children(path)
			return nodes, err
		})
		if err != nil {
			return nil, fmt.Errorf("zookeeper children: %w", err)
		}
		next, err := ahead(nodes, own)
		if err != nil || next == "" {
			return nil, err
		}
		if try {
			return nil, fmt.Errorf("%w: %s is before %s", lock.ErrContended, next, own)
		}
		events, err := ask(ctx, s, func(c *zk.Conn) (<-chan zk.Event, error) {
			_, _, events, err := c.GetW(path + "/" + next)
			return events, err
		})
		switch {
		case err == nil:
			return events, nil
		case !errors.Is(err, zk.ErrNoNode):
			return nil, fmt.Errorf("zookeeper get: %w", err)
		}
	}
}
