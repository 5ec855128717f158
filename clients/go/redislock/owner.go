//go:build owner

package main

import (
	"fmt"
	"sync/atomic"

	"github.com/bsm/redislock"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

// users is how many there were in this process.
var users int32

// options names the owner of the user's locks by its process and its number there, as an application names its
// workers: worker-1, and beside it worker-1.2.
func options(a *lockquake.Access) *redislock.Options {
	token := fmt.Sprintf("worker-%d", a.Client+1)
	if n := atomic.AddInt32(&users, 1); n > 1 {
		token += fmt.Sprintf(".%d", n)
	}
	return &redislock.Options{Token: token}
}
