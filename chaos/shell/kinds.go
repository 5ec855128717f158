// Package shell has the fault that runs the user's own commands on a node, and the orders that it sends to the agent,
// with the answers.
package shell

import "github.com/lockquake/lockquake/chaos"

// Kinds lists them.
func Kinds() []chaos.Kind { return []chaos.Kind{execKind()} }
