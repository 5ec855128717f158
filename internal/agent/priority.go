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
	// spareProcs is how many threads of the agent may run Go code at once, at least, if there are several CPUs. A
	// thread that is not scheduled must not block the one that passes packets. On a single CPU more threads would only
	// compete with each other, and idle ones would search for work.
	spareProcs = 8
)

// raisePriority raises the agent's scheduling priority, if allowed. The agent needs little CPU time, but a late agent
// injects another fault than the requested one.
func raisePriority() {
	if runtime.NumCPU() > 1 && runtime.GOMAXPROCS(0) < spareProcs {
		runtime.GOMAXPROCS(spareProcs)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads { // later ones inherit it
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, agentNiceness)
		}
	}
}
