package agent

// DoClock is the order that shifts the wall clock of a process and of all its descendants: ClockArgs, answered with Clocked. The
// shifts of one process add up, and each is undone for itself.
const DoClock = "clock"

// ClockArgs is one shift of a wall clock.
type ClockArgs struct {
	Jump int64   `json:"jump,omitempty"` // ns
	Gain float64 `json:"gain,omitempty"` // seconds that each second gains from now on: 0.1 runs a tenth too fast
}

// Clocked is what stands after a shift, or after the undo of one.
type Clocked struct {
	Processes int     `json:"processes"`      // whose clock was shifted
	Offset    int64   `json:"offset"`         // ns by which the clock is ahead now, of all shifts together
	Gain      float64 `json:"gain"`           // of all shifts together
	How       string  `json:"how"`            // for a receipt
	Gone      bool    `json:"gone,omitempty"` // after an undo: the process had ended
}
