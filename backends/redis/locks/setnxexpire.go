package locks

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setNxExpire is SETNX followed by a separate command for the expiry (PEXPIRE, so that a TTL need not be whole
// seconds). It is wrong on purpose: a user that dies or loses its connection between the two leaves a key that never
// expires. That is why SET got NX and EX in one command (Redis 2.6.12; the documentation of SETNX mentions the gap).
// It is released with the script of set-px-lua, so the gap is its only mistake.
func setNxExpire() backends.Lock {
	return expiring(backends.Lock{
		Name:   "setnx-expire",
		Doc:    "SETNX, then PEXPIRE as a second command (common before Redis 2.6.12); a script deletes only its own key.",
		Wrong:  "two commands: a holder that crashes between SETNX and PEXPIRE blocks the lock forever",
		Found:  backends.FoundIn("crash-setnx-done", "a stuck lock", "stuck_locks 0: found", "errors-acquire"),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-setnx", "setnx-done", "expire-done", "before-delete", "release-done"},
		Dial:   dialRecipe(means{takeThenExpire, releaseOwn}),
	})
}

// takeThenExpire is an attempt of two commands. Once SETNX was answered no error is certain any more: the key exists.
func takeThenExpire(ctx context.Context, l *recipe, r lock.Request) (lock.Grant, error) {
	g, err := askSetNx(ctx, l, r)
	if err != nil {
		return lock.Grant{}, err
	}
	var o owner
	set, err := l.client.PExpire(sending(ctx, &o), l.keys.Key(r.Lock), r.TTL).Result()
	if err != nil {
		return lock.Grant{}, fmt.Errorf("PEXPIRE after SETNX: %w", err)
	}
	if !set {
		return lock.Grant{}, fmt.Errorf("%w: the key of %s went between SETNX and PEXPIRE", lock.ErrLost, r.Lock)
	}
	lock.At(ctx, "expire-done")
	g.ValidUntil = backends.Validity(o.sent, r.TTL)
	l.held.keep(g, struct{}{})
	return g, nil
}
