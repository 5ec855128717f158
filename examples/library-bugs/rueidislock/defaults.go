//go:build defaults

package main

import (
	lockquake "github.com/lockquake/lockquake/clients/go"
	"github.com/redis/rueidis/rueidislock"
)

// set leaves the options unchanged.
func set(*rueidislock.LockerOption, *lockquake.Access) {}
