//go:build owner

package main

import (
	"fmt"
	"sync/atomic"

	"github.com/bsm/redislock"
	lockquake "github.com/lockquake/lockquake/clients/go"
)

// users counts the users of this process.
var users int32

// options names the owner of the user's locks after its process and its number there, as applications name their
// workers: worker-1, then worker-1.2.
func options(a *lockquake.Access) *redislock.Options {
	token := fmt.Sprintf("worker-%d", a.Client+1)
	if n := atomic.AddInt32(&users, 1); n > 1 {
		token += fmt.Sprintf(".%d", n)
	}
	return &redislock.Options{Token: token}
}
