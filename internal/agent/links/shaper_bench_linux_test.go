//go:build bench && integration

package links

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// TestShapingCost prints the accuracy of a delay of 50 ms at 1000 packets a second, and the maximum packet rate. It
// measures that rate in turns without the fault, without it again (A/A), and with it.
func TestShapingCost(t *testing.T) {
	e := tryEngines()
	if e[links.Queue] != "" {
		t.Fatal(e[links.Queue])
	}
	by := []links.Engine{links.Queue}
	if e[links.Netem] == "" {
		by = append(by, links.Netem)
	} else {
		fmt.Println("netem is not measured:", e[links.Netem])
	}
	const rounds = 5
	for _, engine := range by {
		for round := range rounds {
			for _, arm := range []string{"without", "without again", "with"} {
				c, _ := agenttest.Serve(t, Mechanism())
				x, y := cabledPair(t, c)
				if arm == "with" {
					shaped(t, c, "late/x", x, y, links.Shaping{Engine: engine, Delay: 50 * time.Millisecond})
				}
				load := agenttest.Load()
				slow := sent(t, c, x, y, 2000, time.Millisecond)
				fast := sent(t, c, x, y, 60_000, 10*time.Microsecond)
				fmt.Printf("%s, round %d, %-13s (load %s): n %d at 1000/s: one way p5 %v, p50 %v, p95 %v, max %v, %d lost; n %d as fast as can be: %.0f/s arrive, %d lost\n",
					engine, round+1, arm, load, slow.Sent, slow.OneWay.Low, slow.OneWay.Mid, slow.OneWay.High, slow.OneWay.Max, slow.Sent-slow.Arrived,
					fast.Sent, fast.Bits/8/(gaugeHead+wireHead), fast.Sent-fast.Arrived)
				if arm == "with" {
					unfiltered(t, c, "late/x")
				}
			}
		}
	}
}

// sent measures what goes from x to y.
func sent(t *testing.T, c *agent.Client, x, y cabled, n int, every time.Duration) links.Flow {
	t.Helper()
	var m links.Measured
	err := c.Order(t.Context(), agent.Order{Do: links.DoMeasure, Process: x.Process, With: []proc.Process{y.Process}, Args: links.MeasureArgs{
		ProbeEnd: links.ProbeEnd{Address: x.address}, Peers: []links.ProbeEnd{{Address: y.address}}, Count: n, Every: every, Out: true, Patience: time.Second,
	}}, &m)
	if err != nil {
		t.Fatal(err)
	}
	return m.Peers[0].Out
}
