// Package links has the faults of the network links between nodes, which cut links or delay and drop their packets. It
// also has the orders that they send to the agent, with the answers.
package links

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{
		partitionKind(), holdBackKind(), delayKind(), lossKind(), duplicateKind(), reorderKind(),
		corruptKind(), rateKind(), resetKind(),
	}
}
