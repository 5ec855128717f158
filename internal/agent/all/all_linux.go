// Package all lists what an agent can do: a mechanism in each folder beside this one.
package all

import (
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/clock"
	"github.com/lockquake/lockquake/internal/agent/disk"
	"github.com/lockquake/lockquake/internal/agent/links"
	"github.com/lockquake/lockquake/internal/agent/process"
)

// All returns the mechanisms, anew for each agent.
func All() agent.Mechanisms {
	return agent.Mechanisms{
		clock.Mechanism(),
		disk.Mechanism(),
		links.Mechanism(),
		process.Mechanism(),
	}
}
