//go:build !linux

package processes

import (
	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

// Recorded finds nothing: without /proc the children of a dead supervisor cannot be told from others. Clients end by
// themselves with their control stream.
func Recorded() ([]Marked, error) { return nil, nil }

// ProbePtrace refuses.
func ProbePtrace() (string, error) { return "", netspace.ErrLinux }

// Outlived finds nothing, without /proc: the children of a process cannot be told from others.
func Outlived(owner.Mark, string, string) []proc.Process { return nil }
