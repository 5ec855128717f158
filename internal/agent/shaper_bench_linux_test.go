//go:build bench && integration

package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestShapingCost prints how exact a delay of 50 ms is at 1000 packets a second, and how many packets a second pass at most,
// without the fault, without it again (A/A), and with it, in turns.
func TestShapingCost(t *testing.T) {
	e := TryEngines()
	if e.Queue != "" {
		t.Fatal(e.Queue)
	}
	by := []string{EngineQueue}
	if e.Netem == "" {
		by = append(by, EngineNetem)
	} else {
		fmt.Println("netem is not measured:", e.Netem)
	}
	const rounds = 5
	for _, engine := range by {
		for round := range rounds {
			for _, arm := range []string{"without", "without again", "with"} {
				c, _ := inMemory(t)
				x, y := cabledPair(t, c)
				if arm == "with" {
					shaped(t, c, "late/x", x, y, Shaping{Engine: engine, Delay: 50 * time.Millisecond})
				}
				load := loadNow()
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
func sent(t *testing.T, c *Client, x, y cabled, n int, every time.Duration) Flow {
	t.Helper()
	var m Measured
	err := c.Order(t.Context(), Order{Do: DoMeasure, Process: x.Process, With: []Process{y.Process}, Args: MeasureArgs{
		ProbeEnd: ProbeEnd{Address: x.address}, Peers: []ProbeEnd{{Address: y.address}}, Count: n, Every: every, Out: true, Patience: time.Second,
	}}, &m)
	if err != nil {
		t.Fatal(err)
	}
	return m.Peers[0].Out
}

func loadNow() string {
	b, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(b), " ")
	return one
}
