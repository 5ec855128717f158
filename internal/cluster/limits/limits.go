// Package limits holds child processes to limits of processors and memory, by control groups.
package limits

import (
	"math"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// Unlimited is the subject of what keeps nodes from being held to limits.
const Unlimited = "holding nodes to limits"

// NotHeld is the error of a limit that was set and is not there when read back.
func NotHeld(l node.Limits, found string) error {
	return chaos.Unavailable{What: "limiting a node to " + l.String(), Reason: "what was set reads back as " + found}
}

// NanoCPUs is the CPU limit in the unit of container engines.
func NanoCPUs(l node.Limits) int64 { return int64(math.Round(l.CPUs * 1e9)) }
