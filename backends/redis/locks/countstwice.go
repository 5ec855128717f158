package locks

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// The scripts of a lock that is re-entrant for its owner. They count how often it was taken.
var (
	enter = redis.NewScript(`if redis.call("EXISTS", KEYS[1]) == 1 and redis.call("HEXISTS", KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call("HINCRBY", KEYS[1], ARGV[1], 1) redis.call("PEXPIRE", KEYS[1], ARGV[2]) return 1`)
	leave = redis.NewScript(`local n = redis.call("HINCRBY", KEYS[1], ARGV[1], -1)
if n < 0 then redis.call("HDEL", KEYS[1], ARGV[1]) return -1 end if n == 0 then redis.call("DEL", KEYS[1]) end return n`)
)

// countsTwice is a lock that counts how often its owner took it, and repeats a request whose connection broke before
// the reply. It is wrong on purpose: if the first request was carried out, the lock is taken twice, and one release
// leaves it locked.
func countsTwice() backends.Lock {
	return expiring(backends.Lock{
		Name:   "counts-twice",
		Doc:    "A counter for each owner, as in re-entrant locks, that retries when the connection breaks before the reply.",
		Wrong:  "an acquire that is sent twice counts twice, and its release leaves the lock taken",
		Found:  backends.FoundIn("reset-acquire", "false results of a release", "false_results 0: found"),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			return counted{&recipe{user: u, how: means{enterTwice, leaveOnce}}}
		}),
	})
}

// counted is a recipe whose key is a hash.
type counted struct{ *recipe }

// Check asks whether the grant has a count.
func (l counted) Check(ctx context.Context, g lock.Grant) error {
	stands, err := l.client.HExists(ctx, l.keys.Key(g.Lock), g.ID).Result()
	if err != nil {
		return fmt.Errorf("HEXISTS: %w", err)
	}
	if !stands {
		return notHeld(g)
	}
	return nil
}

func enterTwice(ctx context.Context, l *recipe, r lock.Request) (lock.Grant, error) {
	return l.attempt(ctx, r, func(ctx context.Context, _ link, o *owner) (lock.Token, error) {
		return lock.NoToken, again(func() error {
			n, err := enter.Run(ctx, l.client, []string{l.keys.Key(r.Lock)}, o, r.TTL.Milliseconds()).Int()
			if err == nil && n == 0 {
				return redis.Nil
			}
			return err
		})
	})
}

func leaveOnce(ctx context.Context, l *recipe, g lock.Grant) error {
	lock.At(ctx, "before-delete")
	o := &owner{id: g.ID}
	n, err := leave.Run(ctx, l.client, []string{l.keys.Key(g.Lock)}, o).Int()
	if err != nil {
		return fmt.Errorf("leave by script: %w", o.classify(err))
	}
	l.held.drop(g)
	lock.At(ctx, "release-done")
	if n < 0 {
		return notHeld(g)
	}
	return nil
}
