package zookeeper

import (
	"context"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// herd is what the recipe of ZooKeeper's documentation warns of ("the herd effect"). The queue is the same, but every
// waiter watches all of it. So each release, each new contender and each one that gives up wakes every waiter, and
// all but one look and wait again. It excludes as well as the recipe does. Only the cost differs: the servers count
// it (zookeeper.notifications in env.json), and so does each client process for itself.
func herd() backends.Lock {
	return backends.Lock{
		Name:     "herd",
		Doc:      "The queue of sequential, but every waiter watches the whole queue and is woken by each change (the herd effect of ZooKeeper's recipes).",
		Offers:   offers(),
		Points:   points,
		MinTTL:   minTTL,
		Recovery: backends.RecoveryBy(lockParams, recovery),
		Dial:     dialer(func(u user) lock.Locker { return &recipe{user: u, take: watcher(watchAll).take} }),
	}
}

// watchAll watches the queue as a whole.
func watchAll(ctx context.Context, s *session, path, own string, try bool) (<-chan zk.Event, error) {
	type view struct {
		nodes  []string
		events <-chan zk.Event
	}
	v, err := ask(ctx, s, func(c *zk.Conn) (view, error) {
		nodes, _, events, err := c.ChildrenW(path)
		return view{nodes, events}, err
	})
	if err != nil {
		return nil, fmt.Errorf("zookeeper children: %w", err)
	}
	next, err := ahead(v.nodes, own)
	switch {
	case err != nil || next == "":
		return nil, err
	case try:
		return nil, fmt.Errorf("%w: %s is before %s", lock.ErrContended, next, own)
	}
	return v.events, nil
}
