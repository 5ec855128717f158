// Package process has the faults of processes: they are stopped, frozen, throttled, ended and started again. Beside
// them is what they ask of the agent: its orders and its answers.
package process

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind {
	return []chaos.Kind{pauseKind(), freezeKind(), killKind(), stopKind(), restartKind(), cpuLimitKind()}
}
