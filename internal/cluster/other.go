//go:build !linux

package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/proc"
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

// identity is for Linux only: elsewhere servers are the supervisor's own user.
type identity uint32

func serverIdentity(string) identity { return 0 }

func managesUsers() error { return nil }

func (identity) take(*syscall.SysProcAttr) {}

func (identity) give(string) error { return nil }

// blockingPipe is os.Pipe: off Linux the runtime's poller wakes up more often than necessary.
func blockingPipe() (r, w *os.File, err error) { return os.Pipe() }

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

func ownedByUs(os.FileInfo) bool { return true }

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
func outlived(owner, command, string) []proc.Process { return nil }

// held is not known here.
func held(*os.File) bool { return false }

func wake(*os.File) {}
