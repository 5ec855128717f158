package redis

import (
	"fmt"
	"time"
)

// What `restart` may say.
const (
	restartImmediate = "immediate"
	restartDelayed   = "delayed"
)

func checkRestart(policy string) error {
	if policy != restartImmediate && policy != restartDelayed {
		return fmt.Errorf("restart is %q; it must be %s or %s", policy, restartImmediate, restartDelayed)
	}
	return nil
}

// restartMargin is how much longer than a TTL a delayed server stays away: a command may have been on its way for a while
// when the server ended.
const restartMargin = 500 * time.Millisecond

// restartDelay is how long a server that ended waits before it starts again: with "delayed" longer than any key that it may
// have forgotten could have lived (redis.io, "Distributed Locks with Redis", "Performance, crash recovery and fsync").
func restartDelay(policy string, ttl time.Duration) time.Duration {
	if policy == restartDelayed {
		return ttl + restartMargin
	}
	return 0
}
