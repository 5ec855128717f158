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

// measuredWith measures one link, and how long the machine stood still meanwhile.
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
		Patience: 2 * time.Second,
	})
}

// stoodLink is what a link showed, and the longest time for which the machine stood still meanwhile: a virtual machine is kept
// from its processors for a second now and then, and then so is every packet.
type stoodLink struct {
	links.MeasuredLink
	stood time.Duration
}

// near tells whether a low quantile of durations is what was asked for. What a busy machine adds, it adds to the others first.
func (l stoodLink) near(got, want time.Duration) bool {
	return got >= want && got < want+unshaped+l.stood
}

// unshaped is what a link takes at most that is not delayed, on a busy machine.
const unshaped = 150 * time.Millisecond
