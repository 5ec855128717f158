package clock

import "time"

// The ways in which a clock can be moved.
const (
	ByVDSO = "vdso" // any process, as it runs: the functions of its vDSO that tell the time are patched
	// processes that were started with libfaketime (Preload): jumps only, seen within a second or two
	ByFaketime = "faketime"
)

// DoClock is the order that shifts the wall clock of a process and of all its descendants: Shift, answered with
// Clocked. The shifts of one process add up, and each is undone for itself.
const DoClock = "clock"

// DoClocked is the order that only tells what stands: no arguments, answered with Clocked.
const DoClocked = "clocked"

// Shift is one shift of a wall clock, or of a monotonic one.
type Shift struct {
	Jump time.Duration `json:"jump,omitempty"`
	// seconds that each second gains, counted from Since: 0.1 runs a tenth too fast
	Gain float64 `json:"gain,omitempty"`
	// Since is in ns since 1970 by the machine's clock; 0 is now. A process that takes the place of one that was killed
	// goes on with the drift that its predecessor had.
	Since int64 `json:"since,omitempty"`
	// Still is for how long the monotonic clock stood still: it is behind by that. The wall clock is not changed.
	Still time.Duration `json:"still,omitempty"`
	// How is ByVDSO or ByFaketime, as a fault asks for it; the agent goes by File, which the node fills in.
	How string `json:"-"`
	// File is where the process, with libfaketime loaded into it, looks for its time, by its own path; then it is
	// written there, once, for the descendants as well. "" is the other way: the vDSO of each of them is patched.
	File string `json:"file,omitempty"`
}

// Clocked is what stands after a shift, or after the undo of one.
type Clocked struct {
	Processes int     `json:"processes"`       // whose vDSO was seen to hold the shift
	Offset    int64   `json:"offset"`          // ns by which the clock is ahead now, of all shifts together
	Drifted   int64   `json:"drifted"`         // the part of it that was gained
	Gain      float64 `json:"gain"`            // of all shifts together
	Still     int64   `json:"still,omitempty"` // ns for which the monotonic clock stood still, of all shifts together
	Since     int64   `json:"since,omitempty"` // of this shift
	How       string  `json:"how"`             // for a receipt
	Gone      bool    `json:"gone,omitempty"`  // after an undo: the process had ended
}

// DoReadClocks is the order that has a process read its own clocks: no arguments, answered with Readings. One of its
// threads is made to call the function of the vDSO that its programs call, while the others are held, and then goes on
// where it was.
const DoReadClocks = "read-clocks"

// Readings is what a process reads on its clocks, in ns.
type Readings struct {
	Wall int64 `json:"wall"` // since 1970
	Mono int64 `json:"mono"`
}

// DoRestore is the order that sets clocks right that a dead agent had moved: RestoreArgs, about the processes that the
// order is given with, answered with a line of text for each that it set right. It leaves nothing standing.
const DoRestore = "restore-clocks"

// RestoreArgs has for each process the file that tells its clock, as the process sees it; "" where there is none.
type RestoreArgs struct {
	Files []string `json:"files"`
}
