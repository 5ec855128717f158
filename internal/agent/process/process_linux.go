// Package process freezes and limits processes by the kernel's control groups. Signals are the agent's own.
package process

import (
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
)

// Mechanism is the freezer, and the quota of processor time.
func Mechanism() agent.Mechanism {
	return agent.Mechanism{Orders: map[string]agent.Handler{
		process.DoFreeze:     {Do: agent.Takes(freeze), Can: supported},
		process.DoFrozen:     {Do: frozen},
		process.DoRestore:    {Do: restore, Machine: true},
		process.DoLimitCPU:   {Do: agent.Takes(limitCPU), Can: canLimit},
		process.DoLimitedCPU: {Do: limitedCPU},
	}}
}
