package backends

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/lock"
)

// TestDrift is 1 % of the TTL and 2 ms.
func TestDrift(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		0:                       2 * time.Millisecond,
		100 * time.Millisecond:  3 * time.Millisecond,
		400 * time.Millisecond:  6 * time.Millisecond,
		time.Second:             12 * time.Millisecond,
		1234 * time.Millisecond: 14*time.Millisecond + 340*time.Microsecond,
		time.Minute:             602 * time.Millisecond,
	} {
		if got := Drift(ttl); got != want {
			t.Errorf("of %s it is %s, want %s", ttl, got, want)
		}
	}
}

// TestValidity counts from the send time, however late it is computed.
func TestValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := time.Now()
		time.Sleep(300 * time.Millisecond) // until the answer
		for _, ttl := range []time.Duration{400 * time.Millisecond, 1700 * time.Millisecond, time.Minute} {
			if got, want := Validity(sent, ttl), lock.Until(sent.Add(ttl-Drift(ttl))); got != want {
				t.Errorf("with a TTL of %s: %+v, want %+v", ttl, got, want)
			}
		}
	})
}
