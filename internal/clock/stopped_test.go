package clock

import (
	"testing"
	"time"
)

// TestStopsAreFollowed stops the own clock while the host's goes on, twice.
func TestStopsAreFollowed(t *testing.T) {
	defer stopped.stops.Store(nil)
	const s = int64(time.Second)
	at := func(host, own int64) int64 {
		return look(func() int64 { return host }, func() int64 { return own })
	}
	for _, c := range []struct{ host, own int64 }{
		{10 * s, 10 * s}, {10*s + 5, 10*s - 3}, // the same, within what two readings take
		{9 * s, 10 * s},                        // held up between the readings
		{13 * s, 10*s + 1}, {14 * s, 11*s + 1}, // stood still for 3 s
		{20 * s, 12 * s}, // and for 5 s more
		{30 * s, 29 * s}, // held up again
	} {
		if got := at(c.host, c.own); got != c.host {
			t.Errorf("%d and %d: %d", c.host, c.own, got)
		}
	}
	for own, want := range map[int64]int64{
		9 * s: 0, 10 * s: 0, 10*s + 1: 0, // before the stop, or unknown
		10*s + 2: 3*s - 1, 12 * s: 3*s - 1, 12*s + 1: 8 * s, 100 * s: 8 * s,
	} {
		if got := behindAt(own); got != want {
			t.Errorf("at %d it is behind by %d, want %d", own, got, want)
		}
	}
}

// TestPromiseCountsFromItsRequest: the request of a grant is sent before the stop, and the grant ends after it.
func TestPromiseCountsFromItsRequest(t *testing.T) {
	defer stopped.stops.Store(nil)
	defer stopped.follows.Store(false)
	FollowStops()
	now := time.Now()
	own := base.mono + int64(now.Sub(base.wall))
	stopped.stops.Store(&[]stop{{after: own - int64(time.Second), behind: int64(time.Hour)}})
	const ttl = 4 * time.Second
	for _, c := range []struct {
		sent time.Duration // from now
		want time.Duration
	}{{-2 * time.Second, -2 * time.Second}, {0, time.Hour}} {
		sent := now.Add(c.sent)
		if got := Ends(sent.Add(ttl), ttl) - int64(ttl) - own; got != int64(c.want) {
			t.Errorf("sent %v from now, it counts from %v, want %v", c.sent, time.Duration(got), c.want)
		}
	}
}
