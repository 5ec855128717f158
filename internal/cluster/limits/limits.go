// Package limits limits the CPU and memory of child processes, by control groups.
package limits

import (
	"math"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// Unlimited is the subject of errors about missing limits.
const Unlimited = "limiting nodes"

// NotHeld returns the error for a limit that was set but not read back.
func NotHeld(l node.Limits, found string) error {
	return chaos.Unavailable{What: "limiting a node to " + l.String(), Reason: "the setting reads back as " + found}
}

// NanoCPUs returns the CPU limit in the unit of container engines.
func NanoCPUs(l node.Limits) int64 { return int64(math.Round(l.CPUs * 1e9)) }
