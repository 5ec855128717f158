// Package process has the faults that stop, freeze, throttle, end and restart processes, and the orders that they send
// to the agent, with the answers.
package process

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{pauseKind(), freezeKind(), killKind(), stopKind(), restartKind(), cpuLimitKind()}
}
