package cluster

import (
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is what a control stream's pipe should hold while it is left to fill, in bytes: sixteen thousand events.
const pipeSize = 1 << 20

// blockingPipe is os.Pipe whose ends the runtime does not poll: a watched pipe wakes a thread of this process at every
// write, whether or not anybody reads. A read takes a thread of its own meanwhile, and ends when the writer is gone.
func blockingPipe() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// A smaller pipe will do: its writer waits a little more often.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}
