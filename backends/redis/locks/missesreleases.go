package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// announceOwn deletes the key if it still has the owner's value, and tells those who wait for it.
var announceOwn = redis.NewScript(`if redis.call("GET", KEYS[1]) ~= ARGV[1] then return 0 end
redis.call("DEL", KEYS[1]) redis.call("PUBLISH", KEYS[1], "") return 1`)

// missesReleases is set-px-lua whose waiters sleep until a release is announced. It is wrong on purpose: a waiter looks
// first and listens then, so it sleeps through a release that comes between the two, until the TTL has passed.
func missesReleases() backends.Lock {
	return expiring(backends.Lock{
		Name:  "misses-releases",
		Doc:   "set-px-lua that announces its release on a channel. A waiter asks for the key, then subscribes.",
		Wrong: "a release between the two wakes no waiter, and the lock stays free while users wait for it",
		Found: backends.FoundIn("hand-over", "a lost wake-up", "stuck_ms_max <",
			"release-point", "release-stale"), // an expired key wakes no waiter either
		Offers: backends.Offers{Blocking: true, Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			return announced{&recipe{user: u, how: means{takePx, releaseAnnounced}}}
		}),
	})
}

func releaseAnnounced(ctx context.Context, l *recipe, g lock.Grant) error {
	return l.releaseBy(ctx, g, announceOwn)
}

// announced is a recipe whose releases are announced.
type announced struct{ *recipe }

// Acquire asks for the key, and again after each announcement or a TTL.
func (l announced) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	for {
		g, err := l.TryAcquire(ctx, r)
		if !errors.Is(err, lock.ErrContended) {
			return g, err
		}
		if err := l.listen(ctx, r); err != nil {
			return lock.Grant{}, fmt.Errorf("%w; gave up waiting: %w", lock.ErrContended, err)
		}
	}
}

// listen returns after the next announced release, or after a TTL.
func (l announced) listen(ctx context.Context, r lock.Request) error {
	releases := l.client.Subscribe(ctx, l.keys.Key(r.Lock))
	defer func() { _ = releases.Close() }()
	select {
	case <-releases.Channel():
		return nil
	case <-time.After(r.TTL):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
