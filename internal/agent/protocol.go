package agent

import (
	"encoding/json"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/node"
)

// The requests. Any other word is an order of a mechanism.
const (
	doOwn      = "own"      // PID belongs to the run from now on; answers with its Process
	doInspect  = "inspect"  // answers with its State
	doSignal   = "signal"   // send Signal
	doNow      = "now"      // answers with the agent's CLOCK_MONOTONIC
	doUndo     = "undo"     // undo the orders of Key
	doStanding = "standing" // answers with the keys of all active orders of the run
	doSupports = "supports" // fails, with the reason, if this machine cannot carry out the order named in Args
)

// hello is the first line from the agent.
type hello struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	BootID  string `json:"boot_id"`
	TimeNS  string `json:"time_ns"`
}

// request is one line to the agent. Own, now, inspect and signal are carried out in order, the others concurrently.
type request struct {
	ID      uint64       `json:"id"`
	Do      string       `json:"do"`
	Process proc.Process `json:"process"`
	Signal  string       `json:"signal,omitempty"`
	// Kill asks for SIGKILL when the control stream ends; without it a process is only continued if the agent had
	// stopped it.
	Kill bool `json:"kill,omitempty"`
	// Key names an order for its undo. The supervisor chooses it.
	Key  string          `json:"key,omitempty"`
	Args json.RawMessage `json:"args,omitempty"` // of an order
	With []proc.Process  `json:"with,omitempty"` // further processes of the run that an order is about
}

// response answers the request with the same ID.
type response struct {
	ID      uint64        `json:"id"`
	Error   string        `json:"error,omitempty"`
	Gone    bool          `json:"gone,omitempty"` // the error is ErrNoProcess
	Process *proc.Process `json:"process,omitempty"`
	State   *node.State   `json:"state,omitempty"`
	Now     int64         `json:"now,omitempty"` // ns
	// At is when the request was done, in ns of the agent's CLOCK_MONOTONIC: the answer may be read much later.
	At int64 `json:"at"`
	// Result is what an order answers.
	Result json.RawMessage `json:"result,omitempty"`
}
