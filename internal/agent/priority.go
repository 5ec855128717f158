package agent

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// agentNiceness is the niceness that the agent asks for, as seen from 0.
	agentNiceness = -20
	// spareProcs is how many threads of the agent may run Go code at once, at least, where there are several
	// processors. A thread that is not scheduled must not block the one that sends packets on. On a single processor
	// more of them would only compete with each other, and idle ones would search for work.
	spareProcs = 8
)

// raisePriority raises the agent's scheduling priority, where that is allowed. The agent needs little time, but when it
// is late, the fault is another than the one that was asked for.
func raisePriority() {
	if runtime.NumCPU() > 1 && runtime.GOMAXPROCS(0) < spareProcs {
		runtime.GOMAXPROCS(spareProcs)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads { // those that come later take it over
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, agentNiceness)
		}
	}
}
