package process

import (
	"fmt"
	"time"
)

// DoFreeze is the order that halts a process and its descendants by the kernel's freezer: FreezeArgs. DoFrozen asks the
// kernel whether they are halted: answered with Frozen. It does not rely on the result of DoFreeze.
const (
	DoFreeze = "freeze"
	DoFrozen = "frozen"
)

// DoRestore is the order that thaws what dead agents had frozen, anywhere on the machine: no arguments, answered with a
// line of text for each group that it removed. It needs no undo.
const DoRestore = "restore-frozen"

// FreezeArgs says who freezes the process.
type FreezeArgs struct {
	// Engine means that the container engine freezes the process, in the control group that it made. The agent then
	// only checks that it can reach that group, and thaws it when the order is undone.
	Engine bool `json:"engine,omitempty"`
}

// Frozen is what the kernel says of a process. An undo answers with it too.
type Frozen struct {
	Frozen bool   `json:"frozen"`           // whether its control group is frozen
	Said   string `json:"said"`             // the text that was read, with its group
	Unseen string `json:"unseen,omitempty"` // why its group cannot be read from here; "" if it was read
	// Outside counts descendants in other groups, which are not frozen.
	Outside int `json:"outside,omitempty"`
	// Ran is the total CPU time of all threads of these processes, in ns.
	Ran int64 `json:"ran"`
	// Stop means that a SIGSTOP is pending until the process is thawed.
	Stop bool  `json:"stop,omitempty"`
	Time int64 `json:"time"` // ns of CLOCK_MONOTONIC, after the group was read
	Gone bool  `json:"gone,omitempty"`
}

// Known reports whether the kernel was asked. If not, Frozen is what the container engine says.
func (f Frozen) Known() bool { return f.Unseen == "" }

// DoLimitCPU is the order that limits a process and its descendants to a share of a CPU: CPUArgs. DoLimitedCPU asks the
// kernel for the current limit: answered with CPULimited.
const (
	DoLimitCPU   = "limit-cpu"
	DoLimitedCPU = "limited-cpu"
)

// CPUArgs has the number of CPUs.
type CPUArgs struct {
	CPUs float64 `json:"cpus"`
	// Own means that the process already has a control group of its own, possibly with limits. Otherwise the agent
	// makes one.
	Own bool `json:"own,omitempty"`
}

// CPULimited is what the kernel says of the control group of a process.
type CPULimited struct {
	CPUs      float64       `json:"cpus"`           // 0: no quota
	Periods   int64         `json:"periods"`        // in which anything in the group ran
	Throttled int64         `json:"throttled"`      // of these: in which the quota was used up
	Waited    time.Duration `json:"waited"`         // for which it was throttled
	Said      string        `json:"said"`           // the quota as it was read, with its group
	Limits    int           `json:"limits"`         // active limits of the agent
	Outside   int           `json:"outside"`        // descendants in other groups, which are not limited
	Time      int64         `json:"time"`           // ns of CLOCK_MONOTONIC, after it was read
	Gone      bool          `json:"gone,omitempty"` // the process has ended
}

// since describes how often it was throttled since another reading. A group that was made meanwhile counts from 0.
func (c CPULimited) since(from CPULimited) string {
	if c.Periods < from.Periods {
		from = CPULimited{}
	}
	return fmt.Sprintf("it was throttled in %d of %d periods, for %v", c.Throttled-from.Throttled, c.Periods-from.Periods,
		(c.Waited - from.Waited).Round(time.Millisecond))
}
