//go:build !linux

package cluster

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
)

// thread starts children; only Linux needs a system thread of its own for it.
type thread struct{}

func newThread() *thread { return &thread{} }

func (t *thread) close() {}

func (t *thread) start(cmd *exec.Cmd, _ seat) error { return cmd.Start() }

// seat is where a child belongs.
type seat struct {
	hub   *hub
	node  int
	group *group
}

func childAttributes(bool) *syscall.SysProcAttr { return nil }

func ownedByUs(os.FileInfo) bool { return true }

// hub stands for the namespaces that only Linux has.
type hub struct{ subnet netip.Prefix }

type hubRequest struct {
	run, tag string
	subnet   netip.Prefix
	nodes    int
}

func newHub(*thread, hubRequest) (*hub, error) {
	return nil, errors.New("network namespaces need Linux")
}

func (h *hub) close() error { return nil }
