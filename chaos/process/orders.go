package process

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
