//go:build integration

package agent

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
)

// measuredWith measures one link, and how long the machine stood still meanwhile.
func measuredWith(t *testing.T, c *Client, x, y cabled, args MeasureArgs) stoodLink {
	t.Helper()
	stood := standstill()
	var m Measured
	if err := c.Order(t.Context(), Order{Do: DoMeasure, Process: x.Process, With: []Process{y.Process}, Args: args}, &m); err != nil {
		t.Fatal(err)
	}
	l := stoodLink{MeasuredLink: m.Peers[0], stood: stood()}
	t.Logf("to %+v", l.Out)
	if args.In {
		t.Logf("from %+v", l.In)
	}
	if l.stood > unshaped/2 {
		t.Logf("the machine stood still for %v meanwhile", l.stood)
	}
	return l
}

// gauged measures the link from x to y.
func gauged(t *testing.T, c *Client, x, y cabled, n int, every time.Duration) stoodLink {
	t.Helper()
	return measuredWith(t, c, x, y, MeasureArgs{
		ProbeEnd: ProbeEnd{Address: x.address}, Peers: []ProbeEnd{{Address: y.address}}, Count: n, Every: every, Out: true, In: true, Echo: true,
		Patience: 2 * time.Second,
	})
}

// stoodLink is what a link showed, and the longest time for which the machine stood still meanwhile: a virtual machine is kept
// from its processors for a second now and then, and then so is every packet.
type stoodLink struct {
	MeasuredLink
	stood time.Duration
}

// near tells whether a low quantile of durations is what was asked for. What a busy machine adds, it adds to the others first.
func (l stoodLink) near(got, want time.Duration) bool {
	return got >= want && got < want+unshaped+l.stood
}

// unshaped is what a link takes at most that is not delayed, on a busy machine.
const unshaped = 150 * time.Millisecond

// standstill watches for how long threads that want to run every millisecond do not, one as any other and one as those that
// send packets on, and returns how to end that and be told the longest time.
func standstill() (ended func() time.Duration) {
	var longest atomic.Int64
	over := make(chan struct{})
	var both sync.WaitGroup
	for _, own := range []func(){func() {}, (&alarm{}).own} {
		both.Go(func() {
			own()
			for last := clock.Now(); ; {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
				}
				now := clock.Now()
				for gap := now - last; ; {
					if l := longest.Load(); gap <= l || longest.CompareAndSwap(l, gap) {
						break
					}
				}
				last = now
			}
		})
	}
	return func() time.Duration {
		close(over)
		both.Wait()
		return time.Duration(longest.Load())
	}
}
