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

// stubborn is set-px-lua as in a library that was never tested against a failing server. It is wrong on purpose in
// two ways: a call waits for its answer regardless of its deadline, and a lock object that has seen a broken
// connection never asks again. It fails the conformance checks errors-silence and errors-refused.
func stubborn() backends.Lock {
	return expiring(backends.Lock{
		Name:  "stubborn",
		Doc:   "set-px-lua whose calls wait for their answer without a deadline, and whose lock objects fail for good after a broken connection.",
		Wrong: "a hanging server blocks its callers for as long, and a single refused connection loses its users",
		Found: backends.Found{
			Checks: []string{"errors-refused", "errors-silence"},
			Stories: []backends.Finding{
				{Story: "hang", Shows: "deaf waits", Reasons: []string{"deaf_waits 0: found"}},
				{Story: "refuse", Shows: "wedges", Reasons: []string{"wedges 0: found"}},
			},
		},
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			u.client = u.client.(*redis.Client).WithTimeout(time.Hour)
			var broken error // why this object can no longer be used
			return &recipe{user: u, how: around(func(ctx context.Context, _ *recipe, _ string,
				do func(context.Context) error,
			) error {
				if broken != nil {
					return fmt.Errorf("%w: an earlier call had a broken connection: %w", lock.ErrNotSent, broken)
				}
				err := do(context.WithoutCancel(ctx))
				if err != nil && !errors.Is(err, lock.ErrContended) && !errors.Is(err, lock.ErrNotHeld) {
					broken = err
				}
				return err
			})}
		}),
	})
}
