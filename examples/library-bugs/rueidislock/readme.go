//go:build !defaults

package main

import (
	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/redis/rueidis/rueidislock"
)

// set applies the options of the README's example: Redis 7.0.5 and later need no tracking in a loop.
func set(o *rueidislock.LockerOption, a *lockquake.Access) {
	o.NoLoopTracking, o.TryNextAfter = true, a.Timeout()
}
