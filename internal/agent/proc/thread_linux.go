package proc

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// OnOwnThread runs f on a thread that ends with it, so that the kernel releases what f left on the thread: its own
// namespaces, and traced processes. It returns the thread's id when f has returned, a little before the thread ends.
func OnOwnThread(f func()) (thread int) {
	ran := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and /proc/self shows its namespaces: it waits here while another thread runs
			// f.
			defer runtime.UnlockOSThread()
			ran <- OnOwnThread(f)
			return
		}
		f()
		ran <- unix.Gettid()
	}()
	return <-ran
}

// OnEndedThread also runs f on its own thread, and returns when that thread has ended. Until then no other thread can
// trace what f traced, and a wait for a thread that died while traced never returns.
func OnEndedThread(f func()) {
	thread := OnOwnThread(f)
	for end := clock.Now() + int64(time.Second); clock.Now() < end; time.Sleep(20 * time.Microsecond) {
		if err := unix.Tgkill(unix.Getpid(), thread, 0); errors.Is(err, unix.ESRCH) {
			return
		}
	}
}
