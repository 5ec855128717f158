//go:build !defaults

package main

import (
	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/redis/rueidis/rueidislock"
)

// set gives the options of the README's example: servers of Redis 7.0.5 and later need not track in a loop.
func set(o *rueidislock.LockerOption, a *lockquake.Access) {
	o.NoLoopTracking, o.TryNextAfter = true, a.Timeout()
}
