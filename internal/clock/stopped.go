package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// stopped is what is known of a monotonic clock that Go's time package reads by the vDSO, and that a fault made stand
// still while the host's went on.
//
// Example: the process is stopped when both clocks show 10 s, for 3 s. When it goes on the host's clock shows 13 s and
// Go's 10 s. A time.Time that was taken before is the same time on both; one that is taken after it, such as 11 s, is
// 14 s of the host's.
var stopped struct {
	follows atomic.Bool
	mu      sync.Mutex
	stops   atomic.Pointer[[]stop] // in order; nil: none
}

// stop says that times after that moment of Go's clock are that much later on the host's.
type stop struct{ after, behind int64 }

// seenFrom is the shortest stop that is followed; less is the time between two readings.
const seenFrom = int64(time.Millisecond)

// FollowStops makes Stamp and Of follow the host's clock where a fault makes Go's own stand still. It costs a system
// call at every use.
func FollowStops() { stopped.follows.Store(true) }

// Stamp returns the host's CLOCK_MONOTONIC for an event: by Mono, or by Now after FollowStops.
func Stamp() int64 {
	if !stopped.follows.Load() {
		return Mono()
	}
	return look(Now, Mono)
}

// look reads both clocks, notes a stop, and returns the host's time.
func look(host, own func() int64) int64 {
	at := host()
	to := own() // after the other: a process that is kept from running in between sees less of a stop, and never more
	if at-to <= behindAt(to)+seenFrom {
		return at
	}
	stopped.mu.Lock()
	defer stopped.mu.Unlock()
	var list []stop
	if known := stopped.stops.Load(); known != nil {
		list = append(list, *known...)
	}
	list = append(list, stop{after: to, behind: at - to})
	stopped.stops.Store(&list)
	return at
}

// behindAt is by how much Go's own clock was behind the host's when it showed that time. Between the stop and the first
// look after it nobody knows: there it is what it was before, so that nothing that ends is taken to end too late.
func behindAt(own int64) int64 {
	known := stopped.stops.Load()
	if known == nil {
		return 0
	}
	for i := len(*known) - 1; i >= 0; i-- {
		if s := (*known)[i]; own > s.after {
			return s.behind
		}
	}
	return 0
}

// Ends returns the end of what was promised for so long by a message that was sent before: on the host's
// CLOCK_MONOTONIC, in nanoseconds. The promise counts from when it was sent, and goes on while the process and its
// clock stand still.
func Ends(end time.Time, promised time.Duration) int64 {
	return Of(end.Add(-promised)) + int64(promised)
}
