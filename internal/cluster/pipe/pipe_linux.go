package pipe

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pipeSize is what a control stream's pipe should hold while it is left to fill, in bytes: sixteen thousand events.
const pipeSize = 1 << 20

// New is os.Pipe with ends that the runtime does not poll: a polled pipe wakes a thread of this process at every write,
// even without a reader. A read occupies a thread meanwhile, and ends when the writer is gone.
func New() (r, w *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	// A smaller pipe will do: its writer waits a little more often.
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return os.NewFile(uintptr(fds[0]), "|0"), os.NewFile(uintptr(fds[1]), "|1"), nil
}

// held reports whether any process has the writing end of a pipe open.
func held(r *os.File) (is bool) {
	if c, err := r.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) {
			seen := []unix.PollFd{{Fd: int32(fd)}} // a hang-up is reported without being asked for
			_, err := unix.Poll(seen, 0)
			is = err == nil && seen[0].Revents&unix.POLLHUP == 0
		})
	}
	return is
}

// wake makes a blocked read of a pipe return: closing the pipe does not, if the runtime's poller does not watch it. It
// writes one byte, which that read gets. If the pipe is full, no reader is blocked.
func wake(r *os.File) {
	c, err := r.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) {
		w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return
		}
		_, _ = w.Write([]byte{0})
		_ = w.Close()
	})
}
