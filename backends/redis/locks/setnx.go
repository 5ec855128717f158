package locks

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setNx is the oldest recipe: SETNX takes the key and DEL gives it back. It is wrong on purpose. If a user dies,
// loses its connection in the middle or forgets to release, nothing ever ends its hold; and DEL does not check the
// key's owner. The Redis documentation keeps it as history (SETNX, "Design pattern: Locking with SETNX"). In the
// conformance suite it fails the checks that wait for an expiry, and release-forged.
func setNx() backends.Lock {
	return backends.Lock{
		Name:  "setnx",
		Doc:   "SETNX, released by DEL (redis.io, SETNX, the old design pattern).",
		Wrong: "the key never expires: a crashed holder blocks the lock forever; and a release deletes the key of any owner",
		Found: backends.Found{
			Checks: []string{
				"expiry", "expiry-process", "release-stale", "errors-acquire", "release-forged",
				"release-point",
			},
			Stories: []backends.Finding{
				{Story: "crash", Shows: "a stuck lock", Reasons: []string{"stuck_locks 0: found"}},
				{Story: "slow-replies", Shows: "an orphan that stays", Reasons: []string{"orphan_age_ms <"}},
			},
		},
		Offers: backends.Offers{
			Try: true, Renewal: "none", Token: backends.TokenNone, Reentrant: "no", Expires: false,
		},
		Points:   []string{"before-setnx", "setnx-done", "before-delete", "release-done"},
		Recovery: backends.RecoversIn(recovery), // what its users hope for; the lock does not provide it
		Dial:     dialRecipe(means{takeForEver, releaseAny}),
	}
}

// takeForEver is an attempt without an expiry.
func takeForEver(ctx context.Context, l *recipe, r lock.Request) (lock.Grant, error) {
	g, err := askSetNx(ctx, l, r)
	if err != nil {
		return lock.Grant{}, err
	}
	g.ValidUntil = lock.Endless()
	l.held.keep(g, struct{}{})
	return g, nil
}

// askSetNx sends SETNX.
func askSetNx(ctx context.Context, l *recipe, r lock.Request) (lock.Grant, error) {
	o := newOwner()
	lock.At(ctx, "before-setnx")
	n, err := l.client.Do(ctx, "SETNX", l.keys.Key(r.Lock), o).Int()
	if err != nil {
		return lock.Grant{}, fmt.Errorf("SETNX: %w", o.classify(err))
	}
	if n == 0 {
		return lock.Grant{}, contended(r)
	}
	lock.At(ctx, "setnx-done")
	return lock.Grant{Lock: r.Lock, Mode: lock.Exclusive, ID: o.id, Token: lock.NoToken, Issued: o.sent}, nil
}
