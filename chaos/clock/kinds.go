// Package clock has the faults of the clocks of processes. Beside them is what they ask of the agent: its orders
// and its answers.
package clock

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{clockJumpKind(), clockDriftKind(), clockStopKind()}
}
