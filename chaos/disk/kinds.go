// Package disk has the faults of servers' disks, and the orders to the agent about disks and data directories, with the
// answers.
package disk

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{slowDiskKind(), powerLossKind()}
}
