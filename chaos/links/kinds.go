// Package links has the faults of the network links between nodes: they are cut, and what passes them is delayed, lost
// and so on. Beside them is what they ask of the agent: its orders and its answers.
package links

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{
		partitionKind(), holdBackKind(), delayKind(), lossKind(), duplicateKind(), reorderKind(),
		corruptKind(), rateKind(), resetKind(),
	}
}
