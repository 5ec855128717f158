//go:build !linux

package limits

import (
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// Groups stands for the control groups that only Linux has.
type Groups struct{}

// Group stands for the control group of one node.
type Group struct{}

// Open makes nothing.
func Open(string, string) (*Groups, error) { return nil, errNoGroups }

// Node makes nothing.
func (g *Groups) Node(string, node.Limits) (*Group, string, error) { return nil, "", errNoGroups }

// Remove removes nothing.
func (g *Groups) Remove() error { return nil }

// Remove removes nothing.
func (n *Group) Remove() error { return nil }

// Sweep removes nothing.
func Sweep(string) error { return nil }

// Probe returns an error.
func Probe() (string, error) { return "", errNoGroups }

// Lacking returns the reason.
func Lacking(err error) error { return err }

var errNoGroups = chaos.Unavailable{What: Unlimited, Reason: "control groups need Linux"}
