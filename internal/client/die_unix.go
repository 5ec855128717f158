//go:build unix

package client

import (
	"os"

	"golang.org/x/sys/unix"
)

// die kills the calling process as a fault would: nothing more is flushed, closed or released.
func die() error {
	if err := unix.Kill(os.Getpid(), unix.SIGKILL); err != nil {
		return err
	}
	select {} // the signal is on its way
}
