package agent

import "encoding/json"

// The orders of a request. Any other word names an entry of orders.
const (
	doOwn     = "own"     // PID belongs to the run from now on; answers with its Process
	doInspect = "inspect" // answers with its State
	doSignal  = "signal"  // send Signal
	doUndo    = "undo"    // undo what stands under Key
)

// hello is the first line from the agent.
type hello struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	BootID  string `json:"boot_id"`
	TimeNS  string `json:"time_ns"`
	NoClock string `json:"no_clock,omitempty"` // why the clocks of processes cannot be moved there
}

// request is one line to the agent. Own, inspect and signal are carried out in
// their order; the others side by side.
type request struct {
	ID      uint64  `json:"id"`
	Do      string  `json:"do"`
	Process Process `json:"process"`
	Signal  string  `json:"signal,omitempty"`
	// Kill asks for SIGKILL when the control stream ends; without it a process is only continued if the agent had
	// stopped it.
	Kill bool `json:"kill,omitempty"`
	// Key names what an order leaves standing, so that it can be undone. The supervisor chooses it.
	Key  string          `json:"key,omitempty"`
	Args json.RawMessage `json:"args,omitempty"` // of an entry of orders
	With []Process       `json:"with,omitempty"` // further processes of the run that an entry of orders is about
}

// response answers the request with the same ID.
type response struct {
	ID      uint64   `json:"id"`
	Error   string   `json:"error,omitempty"`
	Gone    bool     `json:"gone,omitempty"` // the error is ErrNoProcess
	Process *Process `json:"process,omitempty"`
	State   *State   `json:"state,omitempty"`
	// Result is what an entry of orders answers.
	Result json.RawMessage `json:"result,omitempty"`
}
