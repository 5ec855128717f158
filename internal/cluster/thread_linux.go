package cluster

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netns"
)

// thread is a system thread of our own. All children of a run are started from it, for two reasons: a child takes the
// network namespace of the thread that starts it, and the kernel kills it when that thread ends, which must therefore
// live as long as the run.
type thread struct {
	jobs chan func()
	done chan struct{}
}

func newThread() *thread {
	t := &thread{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for job := range t.jobs {
			job()
		}
	}()
	return t
}

// do runs f on the thread.
func (t *thread) do(f func() error) error {
	result := make(chan error, 1)
	t.jobs <- func() { result <- f() }
	return <-result
}

func (t *thread) close() {
	close(t.jobs)
	<-t.done
}

// start starts a command where it belongs. A thread that does not find back would start others in the wrong place.
func (t *thread) start(cmd *exec.Cmd, s seat) error {
	return t.do(func() error {
		back, err := s.take(cmd)
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

// seat is where a child belongs: in a node's network namespace (the supervisor's own for node -1 or without hub), and in
// a control group where it has limits.
type seat struct {
	hub   *hub
	node  int
	group *group // nil: no limits
}

// take brings the calling thread there; back, never nil, brings it back from wherever it came to.
func (s seat) take(cmd *exec.Cmd) (back func() error, err error) {
	var undo []func() error
	back = func() error {
		var errs []error
		for _, f := range undo {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if s.group != nil {
		leave, err := s.group.enter(cmd)
		undo = append(undo, leave)
		if err != nil {
			return back, err
		}
	}
	if s.hub == nil || s.node < 0 {
		return back, nil
	}
	undo = append(undo, func() error { return netns.Set(s.hub.origin) })
	return back, netns.Set(s.hub.nodes[s.node])
}

// childAttributes makes the kernel kill the child when the supervisor is gone, stopped or not.
func childAttributes(survives bool) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	if !survives {
		a.Pdeathsig = syscall.SIGKILL
	}
	return a
}

func ownedByUs(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Getuid()
}
