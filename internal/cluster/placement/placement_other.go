//go:build !linux

package placement

import (
	"errors"
	"os/exec"
	"syscall"

	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
)

// Place is where a child starts.
type Place struct {
	Hub   *netspace.Hub
	Node  int
	Group *limits.Group
}

// Start starts a command: there is one place only.
func (Place) Start(_ *netspace.Thread, cmd *exec.Cmd) error { return cmd.Start() }

// Separate returns an error: there are no process namespaces.
func Separate() error {
	return errors.New("there are no process namespaces here: use --provider docker")
}

// Alone does nothing.
func Alone(*syscall.SysProcAttr) {}

// Attributes returns nil.
func Attributes(bool) *syscall.SysProcAttr { return nil }
