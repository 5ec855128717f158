package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// extend renews a grant.
type extend func(ctx context.Context, l renewable, g lock.Grant, ttl time.Duration) (lock.Grant, error)

// extending is set-px-lua with a renewal of its own.
type extending struct {
	renewable
	extend extend
}

// Renew renews the grant in the lock's own way.
func (l extending) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	return l.extend(ctx, l.renewable, g, ttl)
}

// renewsBy returns a lock that differs from set-px-lua in its renewals.
func renewsBy(l backends.Lock, how extend) backends.Lock {
	l.Offers.Renewal = "call"
	l.Points = []string{"before-set", "set-done", "before-delete", "release-done"}
	l.Dial = dialer(func(u user) lock.Locker {
		return extending{renewable{&recipe{user: u, how: means{takePx, releaseOwn}}}, how}
	})
	return expiring(l)
}

// resendsRenewals is set-px-lua that repeats a renewal by a plain SET if the connection broke before the reply. It is
// wrong on purpose: the key may have another owner by then.
func resendsRenewals() backends.Lock {
	return renewsBy(backends.Lock{
		Name:  "resends-renewals",
		Doc:   "set-px-lua that repeats a renewal by a plain SET when the connection breaks before the reply.",
		Wrong: "a renewal that is sent again takes the lock from the next holder",
		Found: backends.FoundIn("resent-renewal", "a double grant", "double_grants 0: found"),
	}, func(ctx context.Context, l renewable, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
		renewed, err := l.Renew(ctx, g, ttl)
		if err == nil || lock.Certain(err) {
			return renewed, err
		}
		o := &owner{id: g.ID}
		if err := l.client.Do(ctx, "SET", l.keys.Key(g.Lock), o, "PX", ttl.Milliseconds()).Err(); err != nil {
			return g, fmt.Errorf("SET: %w", o.classify(err))
		}
		g.ValidUntil = backends.Validity(o.sent, ttl)
		l.held.keep(g, struct{}{})
		return g, nil
	})
}

// leaksConnections is set-px-lua that opens a connection for each renewal and never closes it. It is wrong on purpose
// in what it leaks; its grants are correct.
func leaksConnections() backends.Lock {
	var mu sync.Mutex
	var kept []*redis.Client // otherwise the garbage collector would close them
	return renewsBy(backends.Lock{
		Name:  "leaks-connections",
		Doc:   "set-px-lua that opens a connection for each renewal and never closes it.",
		Wrong: "its process runs out of descriptors, and the server out of connections",
		Found: backends.FoundIn("many-renewals", "a leak in the client's process", "client_leaks 0: found"),
	}, func(ctx context.Context, l renewable, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(kept) == mostLeaks {
			return l.Renew(ctx, g, ttl)
		}
		client := redis.NewClient(l.client.(*redis.Client).Options())
		kept = append(kept, client)
		return l.renewOver(ctx, client, g, ttl)
	})
}

// swallowsErrors is set-px-lua whose renewals fail only if the key has another owner or none. It is wrong on purpose: a
// holder whose renewal did not arrive, or was refused, believes in its grant for longer than the server.
func swallowsErrors() backends.Lock {
	const shows, found = "a double grant", "double_grants 0: found"
	return renewsBy(backends.Lock{
		Name:  "swallows-errors",
		Doc:   "set-px-lua whose renewals ignore all errors, those of the network and those of the server.",
		Wrong: "a renewal that failed is answered ok, and the next user gets the lock beside its holder",
		Found: backends.Found{Stories: []backends.Finding{
			{Story: "refused-renewal", Shows: shows, Reasons: []string{found}},
			{Story: "denied-renewal", Shows: shows, Reasons: []string{found}},
		}},
	}, func(ctx context.Context, l renewable, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
		sent := time.Now()
		renewed, err := l.Renew(ctx, g, ttl)
		if err != nil && !errors.Is(err, lock.ErrNotHeld) {
			g.ValidUntil = backends.Validity(sent, ttl)
			return g, nil
		}
		return renewed, err
	})
}
