package engine

import (
	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/workloads"
)

// Facts are what a plan says to who sweeps over scenarios.
type Facts struct {
	Lock      backends.Lock      // that the scenario uses
	Locks     int                // how many of it there are
	Servers   int                // members of the service
	Workload  workloads.Workload // what each user does; nil: steps only
	InProcess bool               // the clients are goroutines of this process: they have no links of their own
}

// Facts returns what was found in the catalogue.
func (p *Plan) Facts() Facts {
	return Facts{Lock: p.lock, Locks: len(p.locks), Servers: len(p.namesOf(node.Server)), Workload: p.workload, InProcess: p.backend.InProcess}
}

// Host tells what machine this is, as env.json does.
func Host() map[string]string { return host() }
