package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/proc"
)

// meter is a driver that knows how much processor time its node has used.
type meter interface {
	used(ctx context.Context) (time.Duration, error)
}

// CPU returns the user and system time of all that runs in the node, since it was started. Only differences mean something: what
// ended meanwhile may be missing.
func (n *Node) CPU(ctx context.Context) (time.Duration, error) {
	m, ok := n.driver.(meter)
	if !ok {
		return 0, chaos.Unavailable{What: "the processor time of " + n.Name(), Reason: "it shares its process with others"}
	}
	return m.used(ctx)
}

// used sums up the process and all that descends from it.
func (p *localNode) used(context.Context) (time.Duration, error) {
	p.mu.Lock()
	c := p.child
	p.mu.Unlock()
	if c == nil {
		return 0, proc.ErrNoProcess
	}
	return proc.CPU(c.cmd.Process.Pid)
}

// used asks the engine, which reads the container's control group.
func (c *containerNode) used(ctx context.Context) (time.Duration, error) {
	res, err := c.run.api.ContainerStats(ctx, c.box.GetContainerID(), client.ContainerStatsOptions{})
	if err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", c.spec.Name, err)
	}
	defer res.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		return 0, fmt.Errorf("statistics of %s: %w", c.spec.Name, err)
	}
	return time.Duration(s.CPUStats.CPUUsage.TotalUsage), nil
}
