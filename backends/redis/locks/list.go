// Package locks is the locks on Redis, as a client process uses them: a file for each, or for a few that differ in one
// step. It links nothing of what a provider of nodes needs.
package locks

import (
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
)

// OneClient lists the locks that work through one client, whatever topology that reaches. The first is the default.
func OneClient() []backends.Lock {
	return []backends.Lock{
		setPxLua(), setPxIncr(), setNx(), setNxExpire(), setPxDel(), getThenDel(), weakOwner(), redisLock(), redSync(),
		rueidisLock(), rueidisSetPxLua(),
	}
}

// OneServer lists the locks on one server.
func OneServer() []backends.Lock {
	return append(OneClient(), processOwner(), leaksDescriptors(), leaksThreads(), wasteful(), stubborn(),
		evalshaOnly(), resends(), countsTwice())
}

// Quorum lists the locks on independent servers.
func Quorum() []backends.Lock {
	return []backends.Lock{redlock(), redlockNoElapsedCheck(), redlockIncr(), redsyncFive(), redlockUnanimous()}
}

// WithFailover lists the locks of OneClient with recovery bounds that allow for a failover, which may take that long
// once the dead server is noticed. detection is the topology's default for how long it goes unnoticed. A longer setting
// counts twice, because a vote that nobody wins is repeated.
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
