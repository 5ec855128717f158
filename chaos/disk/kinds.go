// Package disk has the faults of the disks of servers. Beside them is what faults ask of the agent about disks and data
// directories: its orders and its answers.
package disk

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{slowDiskKind(), powerLossKind()}
}
