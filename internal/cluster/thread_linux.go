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

// start starts a command in a node's network namespace, or in the harness's own for node -1 or without hub.
func (t *thread) start(cmd *exec.Cmd, h *hub, node int) error {
	return t.do(func() error {
		if h == nil || node < 0 {
			return cmd.Start()
		}
		if err := netns.Set(h.nodes[node]); err != nil {
			return err
		}
		err := cmd.Start()
		back := netns.Set(h.origin)
		if err == nil && back != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		return errors.Join(err, back)
	})
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
