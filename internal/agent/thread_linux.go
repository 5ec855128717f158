package agent

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// onOwnThread runs f on a thread that ends with it, so that the kernel takes back what f left to the thread: a process that it traces, and
// above all one of its threads that died while it was traced, which else is waited for in vain. It returns when f has.
func onOwnThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			onOwnThread(f) // the first thread cannot end: another does it, while this one waits
			return
		}
		f()
	}()
	<-done
}
