//go:build !owner

package main

import (
	"github.com/bsm/redislock"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

// options leaves it to the library to draw a token for each lock.
func options(*lockquake.Access) *redislock.Options { return nil }
