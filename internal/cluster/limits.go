package cluster

import (
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// unlimited is the subject of what keeps nodes from being held to limits.
const unlimited = "holding nodes to limits"

// notHeld is the error of a limit that was set and is not there when read back.
func notHeld(l node.Limits, found string) error {
	return chaos.Unavailable{What: "limiting a node to " + l.String(), Reason: "what was set reads back as " + found}
}
