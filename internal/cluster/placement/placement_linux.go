// Package placement starts children where they belong.
package placement

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
)

// Start starts a command there, from a thread. If the thread cannot leave that again, the child is killed: others would
// start there too.
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

// Place is where a child belongs: in a node's network namespace (the supervisor's own for node -1 or without hub),
// and in a control group where it has limits.
type Place struct {
	Hub   *netspace.Hub
	Node  int
	Group *limits.Group // nil: no limits
}

// enter moves the calling thread there; back, never nil, moves it back, also after an error.
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

// Separate says why children cannot be in process namespaces of their own; nil: they can.
func Separate() error {
	if os.Geteuid() != 0 {
		return errors.New("a process namespace takes root: use --provider docker")
	}
	return nil
}

// Alone puts the child into a process namespace of its own, where it has number 1.
func Alone(a *syscall.SysProcAttr) { a.Cloneflags |= syscall.CLONE_NEWPID }

// Attributes makes the kernel kill the child when the supervisor is gone, stopped or not.
func Attributes(survives bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if !survives {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
