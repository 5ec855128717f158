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

// CanLimit is the capability to hold a node to its Limits.
const CanLimit chaos.Capability = "limits"

// CanAlike is the capability to give all clients the same process id and host name.
const CanAlike chaos.Capability = "alike"

// asked maps the capabilities in which hosts may differ to the orders that an agent is asked about. Containers are
// frozen by their engine.
var asked = map[chaos.Capability]string{
	links.CanFilter: links.DoFilter, links.CanHold: links.DoFilter, links.CanReset: links.DoReset,
	wall.CanClock: wall.DoClock,
}

// offers is the common part of Offers for all providers of real processes.
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
			Reason: "its state is lost with its process; use it on servers", Never: true,
		}
	}
	return chaos.Unavailable{What: string(c), Reason: "no provider supports it"}
}

// shapings are the capabilities of a links.Shaper.
var shapings = []chaos.Capability{links.CanShape, links.CanNetem, links.CanQueue, links.CanThrottle}

// offersShaping returns nil if one of the tried engines provides the capability, else the reason.
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
		why = "the kernel's sch_netem is unavailable (" + why + "): load the module, or take another kernel"
	}
	return chaos.Unavailable{What: string(c), Reason: why}
}

// noClock returns the error for a clock fault with that reason; nil without a reason.
func noClock(reason error) error {
	if reason == nil {
		return nil
	}
	return chaos.Unavailable{What: string(wall.CanClock), Reason: reason.Error()}
}
