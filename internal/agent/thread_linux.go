package agent

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// onOwnThread runs f on a thread that ends with it, so that the kernel takes back what f left to the thread: a process that it traces, and
// above all one of its threads that died while it was traced, which else is waited for in vain. It returns when the thread has ended, for
// until then nobody else can trace the process.
func onOwnThread(f func()) {
	ran := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			onOwnThread(f) // the first thread cannot end: another does it, while this one waits
			ran <- 0
			return
		}
		f()
		ran <- unix.Gettid()
	}()
	thread := <-ran
	for end := clock.Now() + int64(time.Second); thread != 0 && clock.Now() < end; time.Sleep(20 * time.Microsecond) {
		if err := unix.Tgkill(unix.Getpid(), thread, 0); errors.Is(err, unix.ESRCH) {
			return
		}
	}
}
