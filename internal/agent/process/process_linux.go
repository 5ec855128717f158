// Package process freezes and limits processes with the kernel's control groups. Signals are sent by package agent.
package process

import (
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/internal/agent"
)

// Mechanism returns the mechanism of the freezer and the CPU quota.
func Mechanism() agent.Mechanism {
	return agent.Mechanism{Orders: map[string]agent.Handler{
		process.DoFreeze:     {Do: agent.Takes(freeze), Can: supported},
		process.DoFrozen:     {Do: frozen},
		process.DoRestore:    {Do: restore, Machine: true},
		process.DoLimitCPU:   {Do: agent.Takes(limitCPU), Can: canLimit},
		process.DoLimitedCPU: {Do: limitedCPU},
	}}
}
