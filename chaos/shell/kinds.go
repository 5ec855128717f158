// Package shell has the fault that users write themselves: commands on a node. Beside it is what it asks of the agent:
// orders and answers.
package shell

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind { return []chaos.Kind{execKind()} }
