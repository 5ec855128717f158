package plan

import (
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

// Nodes are the nodes of a plan.
type Nodes []node.Spec

// Names returns the names of all nodes.
func (n Nodes) Names() []string {
	var out []string
	for _, s := range n {
		out = append(out, s.Name)
	}
	return out
}

// Of returns the names of the nodes of a role.
func (n Nodes) Of(role node.Role) []string {
	var out []string
	for _, s := range n {
		if s.Role == role {
			out = append(out, s.Name)
		}
	}
	return out
}

// picks returns the nodes that a selector may pick.
func (n Nodes) picks(sel chaos.Selector) []node.Spec {
	var out []node.Spec
	for _, s := range n {
		if sel.MayPick(s.Name, s.Role) {
			out = append(out, s)
		}
	}
	return out
}

// roles returns the roles of the nodes that a selector may pick.
func (n Nodes) roles(sel chaos.Selector) []node.Role {
	var out []node.Role
	for _, s := range n.picks(sel) {
		if !slices.Contains(out, s.Role) {
			out = append(out, s.Role)
		}
	}
	return out
}

// limits converts a scenario's limits for the cluster.
func limits(l scenarios.Limits) node.Limits {
	return node.Limits{CPUs: l.CPUs, Memory: int64(l.Memory)}
}
