//go:build !owner

package main

import (
	"github.com/bsm/redislock"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

// options returns nil: the library draws a random token for each lock.
func options(*lockquake.Access) *redislock.Options { return nil }
