package agent

// DoClock is the order that shifts the wall clock of a process and of all its descendants: ClockArgs, answered with Clocked. The
// shifts of one process add up, and each is undone for itself.
const DoClock = "clock"

// DoClocked is the order that only tells what stands: no arguments, answered with Clocked.
const DoClocked = "clocked"

// ClockArgs is one shift of a wall clock.
type ClockArgs struct {
	Jump int64   `json:"jump,omitempty"` // ns
	Gain float64 `json:"gain,omitempty"` // seconds that each second gains, counted from Since: 0.1 runs a tenth too fast
	// Since is in ns since 1970 by the machine's clock; 0 is now. A process that takes the place of one that was killed goes on with
	// the drift that its predecessor had.
	Since int64 `json:"since,omitempty"`
	// File is where the process, with libfaketime loaded into it, looks for its time, by its own path; then it is written there, once,
	// for the descendants as well. "" is the other way: the vDSO of each of them is patched.
	File string `json:"file,omitempty"`
}

// Clocked is what stands after a shift, or after the undo of one.
type Clocked struct {
	Processes int     `json:"processes"`       // whose vDSO was seen to hold the shift
	Offset    int64   `json:"offset"`          // ns by which the clock is ahead now, of all shifts together
	Drifted   int64   `json:"drifted"`         // the part of it that was gained
	Gain      float64 `json:"gain"`            // of all shifts together
	Since     int64   `json:"since,omitempty"` // of this shift
	How       string  `json:"how"`             // for a receipt
	Gone      bool    `json:"gone,omitempty"`  // after an undo: the process had ended
}

// DoReadClocks is the order that has a process read its own clocks: no arguments, answered with ClocksRead. One of its threads is made
// to call the function of the vDSO that its programs call, while the others are held, and then goes on where it was.
const DoReadClocks = "read-clocks"

// ClocksRead is what a process reads on its clocks, in ns.
type ClocksRead struct {
	Wall int64 `json:"wall"` // since 1970
	Mono int64 `json:"mono"`
}
