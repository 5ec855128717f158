package locks

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// leakEvery is the number of acquires per leaked item, so that a busy client stays within the machine's limits.
const leakEvery = 4

// leaksDescriptors is set-px-lua with a client that opens a file for every fourth acquire and never closes it. It is
// wrong on purpose in what it leaks in its own process; its grants are correct.
func leaksDescriptors() backends.Lock {
	return leaking("leaks-descriptors", "set-px-lua that opens a file at every fourth acquire and never closes it.",
		"its process runs out of descriptors", func() func() {
			var mu sync.Mutex
			var kept []*os.File // otherwise the garbage collector would close them
			return func() {
				if f, err := os.Open(os.DevNull); err == nil {
					mu.Lock()
					defer mu.Unlock()
					kept = append(kept, f)
				}
			}
		}())
}

// leaksThreads is set-px-lua with a client that starts a thread for every fourth acquire. The thread never ends: it
// waits for a renewal that is never requested.
func leaksThreads() backends.Lock {
	return leaking("leaks-threads", "set-px-lua that starts a thread for every fourth acquire, which never ends.",
		"its process runs out of threads", func() {
			go func() {
				runtime.LockOSThread()
				select {}
			}()
		})
}

// mostLeaks bounds a process's leaks: Go ends a program at 10,000 threads.
const mostLeaks = 2000

func leaking(name, doc, wrong string, leave func()) backends.Lock {
	return expiring(backends.Lock{
		Name: name, Doc: doc, Wrong: wrong,
		Found:  backends.FoundIn("contention", "a leak in the client's process", "client_leaks 0: found"),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-set", "set-done", "before-delete", "release-done"},
		Dial: func() func(context.Context, backends.Access) (backends.Connection, error) {
			var n atomic.Int64
			return dialer(func(u user) lock.Locker {
				return leaky{&recipe{user: u, how: means{take: takePx, give: releaseOwn}}, func() {
					if i := n.Add(1); i%leakEvery == 0 && i < mostLeaks*leakEvery {
						leave()
					}
				}}
			})
		}(),
	})
}

// leaky is a recipe whose acquires leak something.
type leaky struct {
	*recipe
	leave func()
}

// Acquire leaks something and polls until the key is free.
func (l leaky) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	l.leave()
	return l.recipe.Acquire(ctx, r)
}
