// Package all lists the mechanisms of an agent: one in each folder beside this one.
package all

import (
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/clock"
	"github.com/lockquake/lockquake/internal/agent/disk"
	"github.com/lockquake/lockquake/internal/agent/links"
	"github.com/lockquake/lockquake/internal/agent/process"
	"github.com/lockquake/lockquake/internal/agent/ptrace"
	"github.com/lockquake/lockquake/internal/agent/shell"
)

// All returns the mechanisms, anew for each agent.
func All() agent.Mechanisms {
	return agent.Mechanisms{
		clock.Mechanism(ptrace.Holder{Untraced: disk.Untraced, Thaw: process.Thaw}),
		shell.Mechanism(),
		disk.Mechanism(),
		links.Mechanism(),
		process.Mechanism(),
	}
}
