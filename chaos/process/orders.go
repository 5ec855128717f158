package process

import (
	"fmt"
	"time"
)

// DoFreeze is the order that halts a process and its descendants by the kernel's freezer: FreezeArgs. DoFrozen asks the
// kernel whether they are halted: answered with Frozen. It looks for itself, whatever DoFreeze came to.
const (
	DoFreeze = "freeze"
	DoFrozen = "frozen"
)

// DoRestore is the order that thaws what dead agents had frozen, anywhere on the machine: no arguments, answered with a
// line of text for each group that it removed. It leaves nothing standing.
const DoRestore = "restore-frozen"

// FreezeArgs says who freezes.
type FreezeArgs struct {
	// Engine tells that the container engine does it, in the control group that it made for the process. The agent then
	// only looks that it reaches that group, and thaws it when the order is undone.
	Engine bool `json:"engine,omitempty"`
}

// Frozen is what the kernel says of a process. The answer of an undo is of the same kind.
type Frozen struct {
	Frozen bool   `json:"frozen"`           // the control group that it is in
	Said   string `json:"said"`             // what was read, and of which group
	Unseen string `json:"unseen,omitempty"` // why its group cannot be looked at from here; "" where it was
	// Outside counts descendants in other groups, which are not halted with it.
	Outside int `json:"outside,omitempty"`
	// Ran is the time in ns for which the threads of all these processes have had a processor.
	Ran int64 `json:"ran"`
	// Stop tells that a SIGSTOP waits for the process, which takes it when it is thawed.
	Stop bool  `json:"stop,omitempty"`
	Time int64 `json:"time"` // ns of CLOCK_MONOTONIC, after the group was read
	Gone bool  `json:"gone,omitempty"`
}

// Known tells whether the kernel was asked. If not, Frozen is what the container engine says.
func (f Frozen) Known() bool { return f.Unseen == "" }

// DoLimitCPU is the order that holds a process and its descendants to a share of a processor: CPUArgs. DoLimitedCPU
// asks the kernel what holds: answered with CPULimited.
const (
	DoLimitCPU   = "limit-cpu"
	DoLimitedCPU = "limited-cpu"
)

// CPUArgs says how many processors.
type CPUArgs struct {
	CPUs float64 `json:"cpus"`
	// Own reports whether the process has a control group of its own already, with whatever limits. Else the agent
	// makes one.
	Own bool `json:"own,omitempty"`
}

// CPULimited is what the kernel says of the control group of a process.
type CPULimited struct {
	CPUs      float64       `json:"cpus"`           // 0: no quota
	Periods   int64         `json:"periods"`        // in which anything in the group ran
	Throttled int64         `json:"throttled"`      // of these: in which it wanted more than the quota
	Waited    time.Duration `json:"waited"`         // for which it had to wait then
	Said      string        `json:"said"`           // the quota as it was read, and of which group
	Limits    int           `json:"limits"`         // of the agent's, that stand
	Outside   int           `json:"outside"`        // descendants in other groups, which are not held
	Time      int64         `json:"time"`           // ns of CLOCK_MONOTONIC, after it was read
	Gone      bool          `json:"gone,omitempty"` // the process has ended
}

// since says how often it had to wait since another reading. A group that was made meanwhile counts from 0.
func (c CPULimited) since(from CPULimited) string {
	if c.Periods < from.Periods {
		from = CPULimited{}
	}
	return fmt.Sprintf("it had to wait in %d of %d periods, for %v", c.Throttled-from.Throttled, c.Periods-from.Periods,
		(c.Waited - from.Waited).Round(time.Millisecond))
}
