//go:build !linux

package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"syscall"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

var errLinux = errors.New("it needs Linux")

func probeNamespaces() error { return errLinux }

func probeNetem() error { return errLinux }

func probePtrace() (string, error) { return "", errLinux }

// processes finds nothing: without /proc the children of a dead supervisor cannot be told from others. Clients end by
// themselves with their control stream.
func (s *Swept) processes(context.Context, SweepOptions) error { return nil }

func clocksHere() []clockOf { return nil }

// thread starts children; only Linux needs a system thread of its own for it.
type thread struct{}

func newThread() *thread { return &thread{} }

func (t *thread) close() {}

func (t *thread) confine() error { return nil }

func (t *thread) start(cmd *exec.Cmd, _ placement) error { return cmd.Start() }

// placement is where a child belongs.
type placement struct {
	hub   *hub
	node  int
	group *group
}

func childAttributes(bool) *syscall.SysProcAttr { return nil }

// hub stands for the namespaces that only Linux has.
type hub struct{ subnet netip.Prefix }

func newHub(*thread, netip.Prefix, int, string) (*hub, error) {
	return nil, errors.New("network namespaces need Linux")
}

func (h *hub) dial(context.Context, string) (net.Conn, error) {
	return nil, errors.New("network namespaces need Linux")
}

func (h *hub) renew(*thread, int, int) error { return errLinux }

func (h *hub) network(int) string { return "" }

func (h *hub) close() {}

// outlived finds nothing, for the same reason as Sweep.
func outlived(owner.Mark, command, string) []proc.Process { return nil }
