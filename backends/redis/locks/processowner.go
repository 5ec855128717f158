package locks

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/lock"
)

// processOwner is set-px-lua with a value that names the process: its host, its process id, the second in which it
// started, and its number of earlier acquires. It is wrong on purpose. Containers of one image all have process id 1,
// often the same host name, and start together. So the first grants of two of them have the same value, and a holder
// whose key has expired deletes the other's. Processes that share a PID namespace never have the same value.
func processOwner() backends.Lock {
	return expiring(backends.Lock{
		Name:   "process-owner",
		Doc:    "set-px-lua with host name, process id, start in seconds and a counter instead of a random value.",
		Wrong:  "two processes in their own namespaces with the same host name and start second have the same value: a holder that outlived its TTL frees the next holder's lock",
		Found:  backends.FoundIn("alike", "a double grant", "double_grants 0: found"),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: dialer(func(u user) lock.Locker {
			return oneValue{&recipe{user: u, how: means{give: releaseOwn}}, processOf}
		}),
	})
}

// acquired counts the acquires of this process.
var acquired atomic.Int64

// processOf names this process, and counts its acquires.
func processOf(*recipe, time.Time) (id string, why lock.Reason) {
	host, _ := os.Hostname()
	started := clock.Time(clock.ProcessStart()).Unix()
	return fmt.Sprintf("%s-%d-%d-%d", host, os.Getpid(), started, acquired.Add(1)), why
}
