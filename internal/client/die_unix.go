//go:build unix

package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// die kills the calling process as a fault would: nothing more is flushed, closed or released. A client in a
// container is the first process of its pid namespace, for which the kernel drops signals from within. That one ends
// by the exit system call, which does as little.
func die() error {
	if os.Getpid() == 1 {
		unix.Exit(137)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		return err
	}
	select {} // the signal is on its way
}
