// Package netspace is the network of a local run, a namespace for each node, and the threads that children are started
// from.
package netspace

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/agent/proc"
)

// Thread is a system thread of our own. All children of a run are started from it, for two reasons: a child takes the
// network namespace of the thread that starts it, and the kernel kills it when that thread ends, which must therefore
// live as long as the run.
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

// Confine permanently prevents what the thread starts from gaining rights: it sets no_new_privs and empties the
// bounding set of capabilities. Servers run as another user and have none. Without CAP_SETPCAP the bounding set stays
// as it is; no_new_privs alone suffices.
func (t *Thread) Confine() error {
	return t.Do(func() error {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("set no_new_privs: %w", err)
		}
		for c := uintptr(0); ; c++ {
			switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); {
			case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM): // that was the last one
				return nil
			case err != nil:
				return fmt.Errorf("drop capability %d: %w", c, err)
			}
		}
	})
}
