package cluster

import (
	"errors"
	"os/exec"
	"syscall"

	"github.com/lockquake/lockquake/internal/cluster/limits"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
)

// start starts a command there, from a thread. If the thread cannot leave that again, the child is killed: others would
// start there too.
func (s placement) start(t *netspace.Thread, cmd *exec.Cmd) error {
	return t.Do(func() error {
		back, err := s.enter(cmd)
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

// placement is where a child belongs: in a node's network namespace (the supervisor's own for node -1 or without hub),
// and in a control group where it has limits.
type placement struct {
	hub   *netspace.Hub
	node  int
	group *limits.Group // nil: no limits
}

// enter moves the calling thread there; back, never nil, moves it back, also after an error.
func (s placement) enter(cmd *exec.Cmd) (back func() error, err error) {
	var undo []func() error
	back = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if s.group != nil {
		leave, err := s.group.Enter(cmd)
		undo = append(undo, leave)
		if err != nil {
			return back, err
		}
	}
	if s.hub == nil || s.node < 0 {
		return back, nil
	}
	leave, err := s.hub.Enter(s.node)
	undo = append(undo, leave)
	return back, err
}

// childAttributes makes the kernel kill the child when the supervisor is gone, stopped or not.
func childAttributes(survives bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if !survives {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}
