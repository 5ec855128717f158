package locks

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// looks is how often lock wasteful reads its key after it has taken or deleted it.
const looks = 50

// wasteful is set-px-lua at an excessive price. It is wrong on purpose in what it costs; its grants are correct. It
// opens a connection for each call, reads the key fifty times after it has taken or deleted it, and waits between two
// attempts in a busy loop. Each of these is the positive control of a bound of the default suite. The conformance
// suite does not test it: its waiters would take CPU time from the other checks and from its own holder, whose grant
// would be over before it is answered.
func wasteful() backends.Lock {
	return expiring(backends.Lock{
		Name:  "wasteful",
		Doc:   "set-px-lua that opens a new connection for each call, reads the key fifty times afterwards, and waits in a busy loop.",
		Wrong: "it costs a connection per call, fifty requests per necessary one, and a core per waiter",
		Found: backends.Found{
			Stories: []backends.Finding{
				{
					Story: "answers", Shows: "too many requests for an acquire, and for a release",
					Reasons: []string{"requests_per_acquire <", "requests_per_release <"},
				},
				{
					Story: "waiting", Shows: "too many connections for a grant, and a core for a waiter",
					Reasons: []string{"connections_per_grant <", "client_cpu_ms_per_wait_s <"},
				},
			},
		},
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			shared := u.client
			o := *shared.(*redis.Client).Options()
			o.MaxRetries = -1 // -1 means none; 0 would mean three
			o.PoolSize = 1    // room for one
			return wastefully{&recipe{
				user: u,
				how: around(func(ctx context.Context, l *recipe, name string, do func(context.Context) error) error {
					client := redis.NewClient(&o)
					client.AddHook(sendHook{})
					l.client = client
					defer func() { l.client, _ = shared, client.Close() }()
					if err := do(ctx); err != nil {
						return err
					}
					for range looks {
						_ = client.Get(ctx, l.keys.Key(name)).Err() // the answer is not used
					}
					return nil
				}),
			}}
		}),
	})
}

// wastefully waits in a busy loop.
type wastefully struct{ *recipe }

// Acquire asks every now and then, and does not sleep in between.
func (l wastefully) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	for {
		lock.Attempt(ctx)
		g, err := l.TryAcquire(ctx, r)
		if !errors.Is(err, lock.ErrContended) || ctx.Err() != nil {
			return g, err
		}
		for until := time.Now().Add(l.params.Retry.Delay); time.Now().Before(until) &&
			ctx.Err() == nil; { //nolint:revive // the loop is the point
		}
	}
}
