package cluster

import (
	"fmt"
	"math"
	"strings"

	"github.com/lockquake/lockquake/chaos"
)

// Limits is how much of its machine a node may use. A zero sets no limit.
type Limits struct {
	CPUs   float64 // processors' worth of time
	Memory int64   // bytes, swap included
}

// CanLimit is what a provider offers that can hold a node to Limits.
const CanLimit chaos.Capability = "limits"

// None tells whether nothing is limited.
func (l Limits) None() bool { return l == Limits{} }

// String names the limits that are set.
func (l Limits) String() string {
	var parts []string
	if l.CPUs != 0 {
		parts = append(parts, fmt.Sprintf("cpus %g", l.CPUs))
	}
	switch {
	case l.Memory == 0:
	case l.Memory%(1<<20) == 0:
		parts = append(parts, fmt.Sprintf("memory %d MiB", l.Memory>>20))
	default:
		parts = append(parts, fmt.Sprintf("memory %d bytes", l.Memory))
	}
	return strings.Join(parts, ", ")
}

// limitsKey is where Cluster.Describe says what limits of a node were read back.
func limitsKey(node string) string { return "limits_" + node }

// nanoCPUs is the CPU limit in the unit of container engines.
func (l Limits) nanoCPUs() int64 { return int64(math.Round(l.CPUs * 1e9)) }

// unlimited is the subject of what keeps nodes from being held to limits.
const unlimited = "holding nodes to limits"

// notHeld is the error of a limit that was set and is not there when read back.
func (l Limits) notHeld(found string) error {
	return chaos.Unavailable{What: "limiting a node to " + l.String(), Reason: "what was set reads back as " + found}
}
