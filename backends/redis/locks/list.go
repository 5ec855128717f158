// Package locks has the locks on Redis, as a client process uses them: one file per lock, or per group of locks that
// differ in one step. It imports nothing that only a provider of nodes needs.
package locks

import (
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
)

// OneClient returns the locks that work through one client, whatever the topology. The first is the default.
func OneClient() []backends.Lock {
	return []backends.Lock{
		setPxLua(), setPxIncr(), setNx(), setNxExpire(), setPxDel(), getThenDel(), weakOwner(), redisLock(), redSync(),
		rueidisLock(), rueidisSetPxLua(),
	}
}

// OneServer returns the locks on one server.
func OneServer() []backends.Lock {
	return append(OneClient(), processOwner(), leaksDescriptors(), leaksThreads(), wasteful(), stubborn(),
		evalshaOnly(), resends(), countsTwice(), missesReleases(), resendsRenewals(), leaksConnections(),
		swallowsErrors())
}

// Quorum returns the locks on independent servers.
func Quorum() []backends.Lock {
	return []backends.Lock{
		redlock(), redlockNoElapsedCheck(), redlockIncr(), redsyncFive(), redlockUnanimous(), redlockCountsErrors(),
		redlockKeepsVotes(),
	}
}

// WithFailover returns the locks of OneClient with recovery bounds that include a failover. failover is how long it
// may take once the dead server is noticed. detection is the topology's default for how long a dead server goes
// unnoticed. A longer setting counts twice, because an undecided vote is repeated.
func WithFailover(detection, failover time.Duration) []backends.Lock {
	list := OneClient()
	for i, l := range list {
		list[i].Recovery = backends.RecoveryBy(access.DecodeLock,
			func(ttl time.Duration, p access.LockParams) time.Duration {
				return l.Bound(ttl, nil) + failover + 2*max(0, p.Detection-detection)
			})
	}
	return list
}
