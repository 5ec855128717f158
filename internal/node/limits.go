package node

import (
	"fmt"
	"strings"
)

// Limits are a node's resource limits. Zero means unlimited.
type Limits struct {
	CPUs   float64 // number of CPUs; may be a fraction
	Memory int64   // bytes, swap included
}

// None reports whether no limit is set.
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
