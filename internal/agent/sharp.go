package agent

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// nicest is the niceness that the agent asks for, as seen from 0.
	nicest = -20
	// spareProcs is how many threads of the agent may run Go code at once, at least, where there are several processors. A
	// thread that the machine keeps from one must not keep the one that sends packets on from running. On a single processor
	// they would only take it from each other, and the search of idle threads for work from everybody.
	spareProcs = 8
)

// sharpen has the machine give the agent the processor when it wants it, where that is allowed: it does little, and what it
// does late is a fault that is not the one asked for.
func sharpen() {
	if runtime.NumCPU() > 1 && runtime.GOMAXPROCS(0) < spareProcs {
		runtime.GOMAXPROCS(spareProcs)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads { // those that come later take it over
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, nicest)
		}
	}
}
