//go:build integration

package links

import (
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/wire"
)

// measuredWith measures one link, and the longest stall of the machine meanwhile.
func measuredWith(t *testing.T, c *agent.Client, x, y cabled, args links.MeasureArgs) stoodLink {
	t.Helper()
	var stood int64 // ns
	watch := wire.Watch(func(gap int64) {
		if gap > int64(unshaped/2) {
			stood = max(stood, gap)
		}
	}, nil)
	var m links.Measured
	err := c.Order(t.Context(), agent.Order{Do: links.DoMeasure, Process: x.Process, With: []proc.Process{y.Process}, Args: args}, &m)
	watch.Stop()
	if err != nil {
		t.Fatal(err)
	}
	l := stoodLink{MeasuredLink: m.Peers[0], stood: time.Duration(stood)}
	t.Logf("to %+v", l.Out)
	if args.In {
		t.Logf("from %+v", l.In)
	}
	if l.stood > 0 {
		t.Logf("the machine stood still for %v meanwhile", l.stood)
	}
	return l
}

// gauged measures the link from x to y.
func gauged(t *testing.T, c *agent.Client, x, y cabled, n int, every time.Duration) stoodLink {
	t.Helper()
	return measuredWith(t, c, x, y, links.MeasureArgs{
		ProbeEnd: links.ProbeEnd{Address: x.address}, Peers: []links.ProbeEnd{{Address: y.address}}, Count: n, Every: every, Out: true, In: true, Echo: true,
		Patience: forArrivals,
	})
}

// stoodLink is the measurement of a link, and the longest stall of the machine meanwhile: a virtual machine loses its
// CPUs for a second now and then, and that delays every packet.
type stoodLink struct {
	links.MeasuredLink
	stood time.Duration
}

// near reports whether a low quantile of durations is as requested. A busy machine delays the others first: of
// datagrams sent over 200 ms, a stall of 200 ms delays only a quarter by more than unshaped.
func (l stoodLink) near(got, want time.Duration) bool {
	return got >= want && got < want+unshaped+l.stood
}

const (
	// unshaped is the longest time over an undelayed link on a busy machine.
	unshaped = 150 * time.Millisecond
	// forArrivals is how long to wait for arrivals: ten stalls of 200 ms. A blocked packet costs all of it.
	forArrivals = 2 * time.Second
	// oneClock is longer than any datagram takes, even on a busy machine. A time by two clocks that are two hours apart
	// exceeds it.
	oneClock = time.Minute
)
