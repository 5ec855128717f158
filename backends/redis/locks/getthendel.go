package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// getThenDel is set-px-lua without the script: the client itself compares the result of GET with its own value, and
// sends DEL. It is wrong on purpose. If a holder's key expires between the two, it deletes the next holder's key, and
// a third user gets in beside the second. (Redis documentation, "Distributed Locks with Redis", "Correct
// Implementation with a Single Instance", has a script for that reason.)
func getThenDel() backends.Lock {
	return expiring(backends.Lock{
		Name:  "get-then-del",
		Doc:   "SET NX PX with a random owner value; the client reads the key, compares, and deletes it by a second command.",
		Wrong: "a release that is delayed between its GET and its DEL frees the next holder's lock",
		Found: backends.Found{
			Checks: []string{"release-between", "release-point"},
			Stories: []backends.Finding{
				{
					Story: "late-release-get-done", Shows: "a double grant",
					Reasons: []string{"double_grants 0: found"},
				},
				{
					Story: "slow-release", Shows: "a double grant, also as a program that announces no points",
					Reasons: []string{"double_grants 0: found"},
				},
			},
		},
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "wait-done", "before-get", "get-done", "release-done"},
		Waits:  true,
		Dial:   dialRecipe(means{takePx, releaseCompared}),
	})
}

// releaseCompared deletes the key if it had this grant's value at the time of the read.
func releaseCompared(ctx context.Context, l *recipe, g lock.Grant) error {
	lock.At(ctx, "before-get")
	o := owner{id: g.ID}
	v, err := l.client.Get(sending(ctx, &o), l.keys.Key(g.Lock)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("GET: %w", o.classify(err))
	}
	if err != nil || v != g.ID {
		l.held.drop(g)
		return notHeld(g)
	}
	lock.At(ctx, "get-done")
	return l.deleteKey(ctx, g)
}
