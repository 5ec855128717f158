//go:build unix

package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// die kills the calling process as a fault would: nothing more is flushed, closed or released. A client in a
// container is the first process of its pid namespace, and the kernel drops signals sent to that from within. There
// the exit system call ends it, which flushes nothing either.
func die() error {
	if os.Getpid() == 1 {
		unix.Exit(137)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		return err
	}
	select {} // the signal is on its way
}
