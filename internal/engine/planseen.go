package engine

import (
	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/workloads"
)

// Lock returns the lock that the plan has found.
func (p *Plan) Lock() backends.Lock { return p.lock }

// Locks returns how many locks of it there are.
func (p *Plan) Locks() int { return len(p.locks) }

// Servers returns how many members the service has.
func (p *Plan) Servers() int { return len(p.namesOf(node.Server)) }

// Workload returns what each user does; nil: steps only.
func (p *Plan) Workload() workloads.Workload { return p.workload }

// InProcess tells whether the clients are goroutines of this process, so that they have no links of their own.
func (p *Plan) InProcess() bool { return p.backend.InProcess }

// Host tells what machine this is, as env.json does.
func Host() map[string]string { return host() }
