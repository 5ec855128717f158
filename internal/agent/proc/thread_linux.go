package proc

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/internal/clock"
)

// OnOwnThread runs f on a thread that ends with it, so that the kernel takes back what f left to the thread: namespaces
// of its own, and processes that it traces. It returns when f has, which is a little before the thread ends, with the
// number of that thread.
func OnOwnThread(f func()) (thread int) {
	ran := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and /proc/self shows its namespaces: it waits here while another does it.
			defer runtime.UnlockOSThread()
			ran <- OnOwnThread(f)
			return
		}
		f()
		ran <- unix.Gettid()
	}()
	return <-ran
}

// OnEndedThread runs f on a thread of its own as well, and returns when that has ended: until then nobody else can
// trace what f traced, and a thread that died while it was traced is waited for in vain.
func OnEndedThread(f func()) {
	thread := OnOwnThread(f)
	for end := clock.Now() + int64(time.Second); clock.Now() < end; time.Sleep(20 * time.Microsecond) {
		if err := unix.Tgkill(unix.Getpid(), thread, 0); errors.Is(err, unix.ESRCH) {
			return
		}
	}
}
