package cluster

import (
	"context"

	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/clock"
)

var _ process.Throttler = (*CPULimit)(nil)

// CPULimit limits a node to a share of a CPU.
type CPULimit struct {
	part
}

// LimitCPU makes the agent limit the node's process and each later one.
func (cl *CPULimit) LimitCPU(ctx context.Context, key string, cpus float64) error {
	return cl.orders.apply(ctx, agent.Order{
		Do: process.DoLimitCPU, Key: cl.orders.key(key),
		Args: process.CPUArgs{CPUs: cpus, Own: cl.ownGroup()},
	}, nil)
}

// UnlimitCPU makes the agent undo one limit.
func (cl *CPULimit) UnlimitCPU(ctx context.Context, key string) error {
	return cl.orders.takeBack(ctx, cl.orders.key(key), nil)
}

// CPULimited asks the kernel, by way of the agent.
func (cl *CPULimit) CPULimited(ctx context.Context) (process.CPULimited, error) {
	var out process.CPULimited
	if !cl.process.Running() {
		return process.CPULimited{Gone: true, Said: noProcessLeft, Time: clock.Now()}, nil
	}
	err := cl.orders.order(ctx, agent.Order{Do: process.DoLimitedCPU}, &out)
	out.Time = cl.orders.runTime(ctx, out.Time)
	return out, err
}

// ownGroup reports whether the node has a control group without other processes.
func (cl *CPULimit) ownGroup() bool {
	p, shares := cl.driver.(interface{ limited() bool })
	return !shares || p.limited()
}
