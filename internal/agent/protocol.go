package agent

// The orders of a request.
const (
	doOwn     = "own"     // PID belongs to the run from now on; answers with its Process
	doInspect = "inspect" // answers with its State
	doSignal  = "signal"  // send Signal
)

// hello is the first line from the agent.
type hello struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	BootID  string `json:"boot_id"`
	TimeNS  string `json:"time_ns"`
}

// request is one line to the agent. Requests are carried out in their order.
type request struct {
	ID      uint64  `json:"id"`
	Do      string  `json:"do"`
	Process Process `json:"process"`
	Signal  string  `json:"signal,omitempty"`
	// Kill asks for SIGKILL when the control stream ends; without it a process is only continued if the agent had
	// stopped it.
	Kill bool `json:"kill,omitempty"`
}

// response answers the request with the same ID.
type response struct {
	ID      uint64   `json:"id"`
	Error   string   `json:"error,omitempty"`
	Gone    bool     `json:"gone,omitempty"` // the error is ErrNoProcess
	Process *Process `json:"process,omitempty"`
	State   *State   `json:"state,omitempty"`
}
