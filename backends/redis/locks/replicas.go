package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/lock"
)

// link is what a request for a grant goes over: the pool, or one connection of it.
type link interface {
	redis.Scripter
	Process(ctx context.Context, cmd redis.Cmder) error
}

// link returns the link for the request for a lock. WAIT counts the replicas that have what its own connection wrote,
// so it must use the connection of the SET.
func (l *recipe) link(ctx context.Context, name string) (via link, done func(), err error) {
	if l.params.Wait == 0 {
		return l.client, func() {}, nil
	}
	var node *redis.Client
	switch c := l.client.(type) {
	case *redis.Client:
		node = c
	case *redis.ClusterClient:
		if node, err = c.MasterForKey(ctx, l.keys.Key(name)); err != nil {
			return nil, nil, fmt.Errorf("primary of %s: %w", name, err)
		}
	default:
		return nil, nil, fmt.Errorf("wait does not work over a %T", c)
	}
	conn := node.Conn()
	return conn, func() { _ = conn.Close() }, nil
}

// replicated returns nil if enough replicas have acknowledged the grant. Otherwise it gives the grant back, and the
// error is certain only if that was acknowledged: a key that may still be there blocks the lock until it expires.
func (l *recipe) replicated(ctx context.Context, via link, g lock.Grant) error {
	cmd := redis.NewIntCmd(ctx, "WAIT", l.params.Wait, l.params.WaitTimeout.Milliseconds())
	err := via.Process(ctx, cmd)
	if err == nil && cmd.Val() >= int64(l.params.Wait) {
		return nil
	}
	why := lock.Because(lock.Reason{
		Cause: lock.CauseNotReplicated, Seen: uint64(l.params.Wait)<<32 | uint64(cmd.Val()),
		N: int64(l.params.WaitTimeout),
	},
		fmt.Errorf("%d of %d replicas acknowledged the key of %s within %s", cmd.Val(), l.params.Wait, g.Lock,
			l.params.WaitTimeout))
	if err != nil {
		why = fmt.Errorf("WAIT: %w", err)
	}
	if err := l.delete(ctx, g, deleteOwn); err != nil && !errors.Is(err, lock.ErrNotHeld) {
		// the delete's certainty is not the acquire's
		return fmt.Errorf("%w, and it is unknown whether the key was deleted: %v", why, err)
	}
	return fmt.Errorf("%w: %w", lock.ErrRefused, why)
}
