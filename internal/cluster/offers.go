package cluster

import (
	"fmt"

	"github.com/lockquake/lockquake/chaos"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/chaos/process"
	"github.com/lockquake/lockquake/chaos/shell"
	"github.com/lockquake/lockquake/internal/node"
)

// CanLimit is what a provider offers that can hold a node to Limits.
const CanLimit chaos.Capability = "limits"

// CanAlike is what a provider offers that can give all clients one process id and one host name.
const CanAlike chaos.Capability = "alike"

// asked are the orders that an agent is asked about, for what hosts may differ in. Containers are frozen by their
// engine.
var asked = map[chaos.Capability]string{
	links.CanFilter: links.DoFilter, links.CanHold: links.DoFilter, links.CanReset: links.DoReset,
	wall.CanClock: wall.DoClock,
}

// offers holds for all providers of real processes.
func offers(c chaos.Capability, r node.Role) error {
	switch c {
	case chaos.CanInspect, chaos.CanPause, process.CanFreeze, process.CanLimitCPU, process.CanKill, process.CanStop,
		links.CanFilter, links.CanHold, links.CanReset, shell.CanExec:
		return nil
	case disk.CanData, disk.CanHoldSyncs, disk.CanCutPower:
		if r == node.Server {
			return nil
		}
		return chaos.Unavailable{
			What: string(c), Reason: "a " + string(r) + " keeps no data; use it on servers",
			Never: true,
		}
	case chaos.CanStart:
		if r == node.Server {
			return nil
		}
		return chaos.Unavailable{
			What:   "starting a " + string(r) + " again",
			Reason: "what it knew died with its process; use it on servers", Never: true,
		}
	}
	return chaos.Unavailable{What: string(c), Reason: "no provider has it"}
}

// shapings are the capabilities of a links.Shaper.
var shapings = []chaos.Capability{links.CanShape, links.CanNetem, links.CanQueue, links.CanThrottle}

// offersShaping tells whether links can be shaped where these engines were tried.
func offersShaping(c chaos.Capability, e links.Engines) error {
	why := map[chaos.Capability]string{
		links.CanNetem: e[links.Netem], links.CanQueue: e[links.Queue],
		links.CanThrottle: e[links.TBF],
	}[c]
	if c == links.CanShape && e[links.Netem] != "" && e[links.Queue] != "" {
		why = fmt.Sprintf("netem: %s; queue: %s", e[links.Netem], e[links.Queue])
	}
	if why == "" {
		return nil
	}
	if c == links.CanNetem {
		why = "the kernel's sch_netem cannot be had (" + why + "): load the module, or take another kernel"
	}
	return chaos.Unavailable{What: string(c), Reason: why}
}

// noClock is the refusal of a clock fault for that reason; nil for none.
func noClock(reason error) error {
	if reason == nil {
		return nil
	}
	return chaos.Unavailable{What: string(wall.CanClock), Reason: reason.Error()}
}
