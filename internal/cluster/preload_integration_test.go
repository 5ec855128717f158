//go:build integration

package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/node"
)

// TestPreloadIsLookedFor finds libfaketime in the project's image, and reports it missing in an empty one.
func TestPreloadIsLookedFor(t *testing.T) {
	d := engine(t, DockerOptions{Mechanisms: all.All()})
	if err := d.Prepares(wall.Preload, redisSpec("redis-1"), ""); err != nil {
		t.Errorf("the project's own image: %v", err)
	}
	var missing chaos.Unavailable
	if err := d.Prepares(wall.Preload, redisSpec("redis-1"), "debian:bookworm-slim"); !errors.As(err, &missing) || !strings.Contains(missing.Reason, "debian:bookworm-slim") {
		t.Errorf("an image without it: %v", err)
	}
	if err := d.Prepares("wings", redisSpec("redis-1"), ""); !errors.As(err, &missing) {
		t.Errorf("a preparation that nobody knows: %v", err)
	}
	nothingLeft(t, "preload")
}

// TestClocksOfTheEnginesKernel asks the containers' kernel, through a temporary agent.
func TestClocksOfTheEnginesKernel(t *testing.T) {
	d := engine(t, DockerOptions{Mechanisms: all.All(), Self: testBinary(t)})
	byAgent, own := noClock(d.agentSupports(wall.DoClock)), d.canClock()
	if d.ourKernel() && (byAgent == nil) != (own == nil) {
		t.Errorf("the agent says %v, on the same kernel we say %v", byAgent, own)
	}
	if err := d.Offers(wall.CanClock, node.Server); (err == nil) != (own == nil) {
		t.Errorf("it offers %v, and can %v", err, own)
	}
	nothingLeft(t, "probe")
}
