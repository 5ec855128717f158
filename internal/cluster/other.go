//go:build !linux

package cluster

import (
	"context"
	"os/exec"
	"syscall"

	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
)

func probePtrace() (string, error) { return "", netspace.ErrLinux }

// processes finds nothing: without /proc the children of a dead supervisor cannot be told from others. Clients end by
// themselves with their control stream.
func (s *Swept) processes(context.Context, SweepOptions) error { return nil }

func clocksHere() []clockOf { return nil }

func (placement) start(_ *netspace.Thread, cmd *exec.Cmd) error { return cmd.Start() }

// placement is where a child belongs.
type placement struct {
	hub   *netspace.Hub
	node  int
	group *limits.Group
}

func childAttributes(bool) *syscall.SysProcAttr { return nil }
