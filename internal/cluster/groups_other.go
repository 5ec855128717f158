//go:build !linux

package cluster

import (
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// groups stands for the control groups that only Linux has.
type groups struct{}

// group stands for the control group of one node.
type group struct{}

func openGroups(string, string) (*groups, error) { return nil, errNoGroups }

func (g *groups) node(string, node.Limits) (*group, string, error) { return nil, "", errNoGroups }

func (g *groups) remove() error { return nil }

func (n *group) remove() error { return nil }

func sweepGroups(string) error { return nil }

func probeLimits() (string, error) { return "", errNoGroups }

func noLimits(err error) error { return err }

var errNoGroups = chaos.Unavailable{What: unlimited, Reason: "control groups need Linux"}
