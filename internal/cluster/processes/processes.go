// Package processes marks the processes of local runs, and finds those that outlived a node or a supervisor by their
// marks.
package processes

import "regexp"

// OwnerVariable begins the environment setting that marks a child.
const OwnerVariable = "LOCKQUAKE_OWNER="

// NodeName is what names of nodes are made of.
var NodeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,40}$`)
