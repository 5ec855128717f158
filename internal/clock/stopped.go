package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// stopped records the stops of the monotonic clock that Go's time package reads through the vDSO. A fault made it stand
// still while the host's clock went on.
//
// Example: the process is stopped when both clocks show 10 s, for 3 s. When it continues, the host's clock shows 13 s
// and Go's 10 s. A time.Time taken before the stop is the same on both; one taken after it, such as 11 s, is 14 s on
// the host's clock.
var stopped struct {
	follows atomic.Bool
	mu      sync.Mutex
	stops   atomic.Pointer[[]stop] // in order; nil: none
}

// stop means that times after that moment on Go's clock are that much later on the host's.
type stop struct{ after, behind int64 }

// seenFrom is the shortest stop that is recorded; less may be the time between two readings.
const seenFrom = int64(time.Millisecond)

// FollowStops makes Stamp and Of follow the host's clock even if a fault stops Go's own. It costs a system call at
// every use.
func FollowStops() { stopped.follows.Store(true) }

// Stamp returns the host's CLOCK_MONOTONIC for an event: by Mono, or by Now after FollowStops.
func Stamp() int64 {
	if !stopped.follows.Load() {
		return Mono()
	}
	return look(Now, Mono)
}

// look reads both clocks, records a stop, and returns the host's time.
func look(host, own func() int64) int64 {
	at := host()
	// Read after the host's: if the process is descheduled in between, it sees a shorter stop, never a longer one.
	to := own()
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

// behindAt returns by how much Go's clock was behind the host's when it showed that time. Between a stop and the first
// look after it the value is unknown. There the earlier, smaller value is used, so that no end is taken to be too late.
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

// Ends returns, on the host's CLOCK_MONOTONIC in nanoseconds, when a promise of the given duration ends. end is that
// end on Go's clock. The promise counts from the sending of a message, and goes on while the process and its clock
// stand still.
func Ends(end time.Time, promised time.Duration) int64 {
	return Of(end.Add(-promised)) + int64(promised)
}
