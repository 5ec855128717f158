package clock

import "time"

// The mechanisms that move a clock.
const (
	ByVDSO = "vdso" // any running process: the time functions of its vDSO are patched
	// processes that were started with libfaketime (Preload): jumps only, seen within a second or two
	ByFaketime = "faketime"
)

// DoClock is the order that shifts the wall clock of a process and its descendants: Shift, answered with Clocked. The
// shifts of one process add up, and each is undone separately.
const DoClock = "clock"

// DoClocked is the order that reads the current shift: no arguments, answered with Clocked.
const DoClocked = "clocked"

// Shift is one shift of a wall clock, or of a monotonic one.
type Shift struct {
	Jump time.Duration `json:"jump,omitempty"`
	// seconds that each second gains, counted from Since: 0.1 runs a tenth too fast
	Gain float64 `json:"gain,omitempty"`
	// Since is in ns since 1970 on the machine's clock; 0 is now. With it, a process that replaces a killed one keeps
	// its predecessor's drift.
	Since int64 `json:"since,omitempty"`
	// Still is how long the monotonic clock stood still, and so how far it is behind. The wall clock is not changed.
	Still time.Duration `json:"still,omitempty"`
	// How is ByVDSO or ByFaketime, as the fault asks. The agent uses File instead, which the node fills in.
	How string `json:"-"`
	// File is the file, as the process sees it, from which libfaketime reads its offset. It is written once, for the
	// descendants too. "" means that the vDSO of each process is patched instead.
	File string `json:"file,omitempty"`
}

// Clocked is the state of the clocks after a shift, or after the undo of one.
type Clocked struct {
	Processes int     `json:"processes"`       // whose vDSO was seen to hold the shift
	Offset    int64   `json:"offset"`          // ns by which the clock is ahead now, by all shifts together
	Drifted   int64   `json:"drifted"`         // the part of it that was gained
	Gain      float64 `json:"gain"`            // of all shifts together
	Still     int64   `json:"still,omitempty"` // ns for which the monotonic clock stood still, of all shifts together
	Since     int64   `json:"since,omitempty"` // of this shift
	How       string  `json:"how"`             // for the receipt
	Gone      bool    `json:"gone,omitempty"`  // after an undo: the process had ended
}

// DoReadClocks is the order that makes a process read its own clocks: no arguments, answered with Readings. One thread
// is made to call the vDSO function that its program uses, while the others are held. It then continues where it was.
const DoReadClocks = "read-clocks"

// Readings are the times that a process reads on its clocks, in ns.
type Readings struct {
	Wall int64 `json:"wall"` // since 1970
	Mono int64 `json:"mono"`
}

// DoRestore is the order that restores the clocks that a dead agent had moved: RestoreArgs, with the processes of the
// order, answered with a line of text for each restored process. It needs no undo.
const DoRestore = "restore-clocks"

// RestoreArgs has the libfaketime file of each process, as the process sees it; "" if it has none.
type RestoreArgs struct {
	Files []string `json:"files"`
}
