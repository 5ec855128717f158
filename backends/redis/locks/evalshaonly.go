package locks

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// evalshaOnly is set-px-lua with a release that calls a script loaded once. It is wrong on purpose: after a restart
// or SCRIPT FLUSH the server no longer has the script, and every release fails from then on.
func evalshaOnly() backends.Lock {
	return expiring(backends.Lock{
		Name:   "evalsha-only",
		Doc:    "set-px-lua that loads its script with the first acquire and releases with EVALSHA alone.",
		Wrong:  "after a restart of the server no release works any more",
		Found:  backends.FoundIn("restart", "errors after recovery", "errors_after_recovery 0: found"),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			loaded := false
			take := func(ctx context.Context, l *recipe, r lock.Request) (lock.Grant, error) {
				if !loaded {
					if err := deleteOwn.Load(ctx, l.client).Err(); err != nil {
						return lock.Grant{}, fmt.Errorf("%w: SCRIPT LOAD: %w", lock.ErrNotSent, err)
					}
					loaded = true
				}
				return takePx(ctx, l, r)
			}
			return &recipe{user: u, how: means{take, releaseLoaded}}
		}),
	})
}

// releaseLoaded is releaseOwn with a script that must already be loaded.
func releaseLoaded(ctx context.Context, l *recipe, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	o := &owner{id: g.ID}
	n, err := deleteOwn.EvalSha(ctx, l.client, []string{l.keys.Key(g.Lock)}, o).Int()
	if err != nil {
		return fmt.Errorf("delete by script: %w", o.classify(err))
	}
	l.held.drop(g)
	lock.At(ctx, "release-done")
	if n == 0 {
		return notHeld(g)
	}
	return nil
}
