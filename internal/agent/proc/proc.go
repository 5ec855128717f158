// Package proc reads and signals processes from outside them, and runs functions on threads of their own.
package proc

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

// Unseen is an extra state letter, with the count 1, if threads came and went so fast that the list of them is
// incomplete. Such a process is never taken for one whose threads are all in one state.
const Unseen = "?"

// Process identifies a process, even after its pid was reused.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks from boot to its start, from /proc/PID/stat
}

// ErrNoProcess means that the process has ended.
var ErrNoProcess = errors.New("no such process")

// Find identifies the process that has the pid now. It rejects pids that no target can have: signals to 0 and -1 would
// reach the supervisor itself, and 1 is the machine's init.
func Find(pid int) (Process, error) {
	if pid < 2 {
		return Process{}, fmt.Errorf("pid %d cannot be a target", pid)
	}
	start, err := StartTime(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: start}, nil
}

// Alive reports whether the process still exists (an unreaped one does).
func (p Process) Alive() bool {
	start, err := StartTime(p.PID)
	return err == nil && start == p.Start
}

// Inspect reads the state of all threads of the process. A process that has ended gives a State with PID 0.
func (p Process) Inspect() (node.State, error) {
	threads, err := p.threads()
	if errors.Is(err, ErrNoProcess) || err == nil && !p.Alive() {
		return node.State{Time: clock.Now()}, nil
	}
	return node.State{PID: p.PID, Threads: threads, Time: clock.Now()}, err
}

// watchTime is how long to wait for the effect of a signal: a stop and its undo take some 0.1 ms.
const watchTime = 3 * time.Millisecond

// Watch waits for the effect of a STOP or CONT, for at most watchTime, and returns the last state it saw. So the sender
// need not ask again. It returns nil for other signals.
func (p Process) Watch(signal string) *node.State {
	if signal != "STOP" && signal != "CONT" {
		return nil
	}
	for end := clock.Now() + int64(watchTime); ; time.Sleep(50 * time.Microsecond) {
		s, err := p.Inspect()
		if err != nil {
			return nil
		}
		stopped := len(s.Threads) == 1 && s.Threads["T"] > 0
		if s.PID == 0 || signal == "STOP" && stopped || signal == "CONT" && s.Threads["T"] == 0 || s.Time > end {
			return &s
		}
	}
}

// threads counts the threads by state.
func (p Process) threads() (map[string]int, error) {
	return whole(func() (map[string]int, bool, error) { return readThreads(p.PID) })
}

// whole reads until no threads came or went meanwhile. After some tries it marks the last list as incomplete.
func whole(read func() (seen map[string]int, complete bool, err error)) (map[string]int, error) {
	var last map[string]int
	for range 4 {
		seen, complete, err := read()
		if err != nil {
			return nil, err
		}
		if complete {
			return seen, nil
		}
		last = seen
	}
	last[Unseen] = 1
	return last, nil
}

// Signal sends the named signal ("STOP", "CONT", "KILL", "TERM", "INT") to the process and to no other.
func (p Process) Signal(name string) error {
	if p.PID < 2 {
		return fmt.Errorf("pid %d cannot be a target", p.PID)
	}
	if !p.Alive() {
		return ErrNoProcess
	}
	return send(p.PID, name)
}

// Unlimited is the value of a limit that is not set.
const Unlimited = ^uint64(0)

// Command returns the name of the program that a process runs, cut to 15 bytes; "" when it has ended.
func (p Process) Command() string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
	if err != nil || len(name) == 0 || !p.Alive() {
		return ""
	}
	return string(name[:len(name)-1])
}
