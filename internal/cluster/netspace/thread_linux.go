// Package netspace has the network of a local run, with a namespace for each node, and the threads that start children.
package netspace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
)

// Thread is a system thread of our own that starts all children of a run. There are two reasons: a child inherits the
// network namespace of the thread that starts it, and the kernel kills the child when that thread ends. So the thread
// must live as long as the run.
type Thread struct {
	jobs chan func()
	done chan struct{}
}

// NewThread starts a thread.
func NewThread() *Thread {
	t := &Thread{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		proc.OnOwnThread(func() {
			for job := range t.jobs {
				job()
			}
		})
	}()
	return t
}

// Do runs f on the thread.
func (t *Thread) Do(f func() error) error {
	result := make(chan error, 1)
	t.jobs <- func() { result <- f() }
	return <-result
}

// Close ends the thread.
func (t *Thread) Close() {
	close(t.jobs)
	<-t.done
}

// Confine permanently prevents the thread's children from gaining rights: it sets no_new_privs and empties the
// capability bounding set. Servers run as another user and have no capabilities. Without CAP_SETPCAP the bounding set
// stays as it is; no_new_privs alone suffices.
func (t *Thread) Confine() error {
	return t.Do(func() error {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		for c := uintptr(0); ; c++ {
			switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); {
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM): // past the last one
				return nil
			case err != nil:
				return fmt.Errorf("drop capability %d: %w", c, err)
			}
		}
	})
}
