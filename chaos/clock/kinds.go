// Package clock has the faults of process clocks, and the orders that they send to the agent, with the answers.
package clock

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{clockJumpKind(), clockDriftKind(), clockStopKind()}
}
