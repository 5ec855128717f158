package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// State is the state of a node's process as seen from outside it.
type State struct {
	PID int `json:"pid"` // in the observer's pid namespace; 0 when there is no process
	// number of threads by state letter of /proc/PID/task/*/stat: R, S, D, T, ...
	Threads map[string]int `json:"threads,omitempty"`
	Time    int64          `json:"time"` // ns of CLOCK_MONOTONIC after the last thread was read
	// TimeError bounds the error of Time, in ns, from the comparison of the observer's clock with the run's. 0 if the
	// clock is the run's.
	TimeError int64 `json:"time_error,omitempty"`
	// Sent is the time just before the signal that caused this state was sent, so all its effects are later. 0 if no
	// signal was sent.
	Sent int64 `json:"sent,omitempty"`
	// Frozen is what the freezer says if the process is frozen: its threads then do not show whether they were stopped.
	Frozen string `json:"frozen,omitempty"`
	// Waits means that a SIGSTOP is pending until the process is thawed.
	Waits bool `json:"waits,omitempty"`
}

// Gone reports whether there was no process (or only an unreaped one).
func (s State) Gone() bool { return s.PID == 0 || len(s.Threads) == 1 && s.Threads["Z"] > 0 }

// Stopped reports whether every thread was stopped by a signal, or is frozen and will be stopped once thawed.
func (s State) Stopped() bool {
	return s.PID != 0 && (len(s.Threads) == 1 && s.Threads["T"] > 0 || s.Frozen != "" && s.Waits)
}

// String describes the state for the receipt.
func (s State) String() string {
	if s.PID == 0 {
		return "no process"
	}
	text := fmt.Sprintf("pid %d, %s", s.PID, s.threads())
	if s.Frozen != "" {
		text += ", " + s.Frozen
	}
	if s.Waits {
		text += ", where a SIGSTOP waits"
	}
	return text
}

// threadStates are the state letters of /proc/PID/task/*/stat in words.
var threadStates = map[string]string{
	"R": "running", "S": "sleeping", "D": "in an uninterruptible wait", "T": "stopped", "t": "stopped by a tracer",
	"I": "idle", "Z": "dead", "X": "dead",
}

// threads describes the states of the threads, such as "all 6 threads stopped".
func (s State) threads() string {
	var parts []string
	total := 0
	for _, letter := range slices.Sorted(maps.Keys(s.Threads)) {
		word := threadStates[letter]
		if word == "" {
			word = "in state " + letter
		}
		total += s.Threads[letter]
		parts = append(parts, fmt.Sprintf("%d %s", s.Threads[letter], word))
	}
	switch {
	case len(parts) == 0:
		return "no threads seen"
	case len(parts) > 1:
		return fmt.Sprintf("of %d threads %s", total, strings.Join(parts, ", "))
	case total == 1:
		return "its only thread " + strings.TrimPrefix(parts[0], "1 ")
	}
	_, word, _ := strings.Cut(parts[0], " ")
	return fmt.Sprintf("all %d threads %s", total, word)
}
