// Package placement starts children in their namespaces and control groups.
package placement

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
)

// Start starts a command in the place, from a thread. If the thread cannot leave the place again, the child is killed:
// later children would start there too.
func (p Place) Start(t *netspace.Thread, cmd *exec.Cmd) error {
	return t.Do(func() error {
		back, err := p.enter(cmd)
		if err == nil {
			err = cmd.Start()
		}
		lost := back()
		if err == nil && lost != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return errors.Join(err, lost)
	})
}

// Place is where a child starts: in a node's network namespace (the supervisor's own for node -1 or without hub), and
// in a control group if it has limits.
type Place struct {
	Hub   *netspace.Hub
	Node  int
	Group *limits.Group // nil: no limits
}

// enter moves the calling thread there; back, never nil, moves it back, even after an error.
func (p Place) enter(cmd *exec.Cmd) (back func() error, err error) {
	var undo []func() error
	back = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if p.Group != nil {
		leave, err := p.Group.Enter(cmd)
		undo = append(undo, leave)
		if err != nil {
			return back, err
		}
	}
	if p.Hub == nil || p.Node < 0 {
		return back, nil
	}
	leave, err := p.Hub.Enter(p.Node)
	undo = append(undo, leave)
	return back, err
}

// Separate returns why children cannot have their own process namespaces; nil if they can.
func Separate() error {
	if os.Geteuid() != 0 {
		return errors.New("a process namespace needs root: use --provider docker")
	}
	return nil
}

// Alone puts the child into a process namespace of its own, where it has pid 1.
func Alone(a *syscall.SysProcAttr) { a.Cloneflags |= syscall.CLONE_NEWPID }

// Attributes returns attributes with which the kernel kills the child, stopped or not, when the supervisor dies.
func Attributes(survives bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if !survives {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
