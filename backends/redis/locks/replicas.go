package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/lock"
)

// link is what a grant is asked over: the pool, or one connection of it.
type link interface {
	redis.Scripter
	Process(ctx context.Context, cmd redis.Cmder) error
}

// link returns what the request for a lock goes over. WAIT counts the replicas that have what its own connection wrote,
// so it must use the one that SET used.
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

// replicated returns nil when enough replicas have acknowledged the grant. Else the grant is given back, and the error
// is certain only if that was: a key that may still be there blocks the lock until it expires.
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
	if err := l.deleteOwn(ctx, g); err != nil && !errors.Is(err, lock.ErrNotHeld) {
		// the delete's certainty is not the acquire's
		return fmt.Errorf("%w, and nobody knows whether the key was deleted: %v", why, err)
	}
	return fmt.Errorf("%w: %w", lock.ErrRefused, why)
}
