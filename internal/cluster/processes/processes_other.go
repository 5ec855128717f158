//go:build !linux

package processes

import (
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

// Recorded returns nothing: without /proc the children of a dead supervisor cannot be recognized. Clients end by
// themselves with their control stream.
func Recorded() ([]Marked, error) { return nil, nil }

// ProbePtrace returns an error.
func ProbePtrace() (string, error) { return "", netspace.ErrLinux }

// Outlived returns nothing: without /proc the children of a process cannot be recognized.
func Outlived(owner.Mark, string, string) []proc.Process { return nil }
