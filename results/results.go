// Package results is what a run means: it reads a run directory, never a live thing, so that every verdict can be
// recomputed from disk. One file per checker; report/ draws and prints.
package results

import (
	"github.com/lockquake/lockquake/history"
)

// Verdict is the answer of a checker (clean, violated, unknown) or of a run (pass, fail, unknown).
type Verdict string

// The verdicts.
const (
	Clean    Verdict = "clean"
	Violated Verdict = "violated"
	Unknown  Verdict = "unknown"
	Pass     Verdict = "pass"
	Fail     Verdict = "fail"
)

// Run is what the checkers are told about the run before its events.
type Run struct {
	TTL        int64            // ns
	Locks      []string         // names, by Event.Lock
	Token      string           // "none", "service" or "home-made"
	Expires    bool             // a dead holder's grant ends by itself
	Recovery   int64            // ns: the lock's declared recovery bound
	Increments bool             // each acknowledged write adds one to what the lock protects
	Writes     string           // what the workload's writes mean beside: "sales", "seats", "transfers", "elements" or ""
	Terms      map[string]int64 // numbers that they are judged by
	Directed   bool             // by steps: whoever asks does so because it was told to
	Resource   string           // "" where nothing is protected
	Guard      string           // of the resource
	Replicas   []string         // names of the processes that the resource consists of, where what a majority did counts; else none
	Faults     []history.Fault  // in the order of their start
	// Observed is what the service said when steps asked it.
	Observed  []history.Observation
	Processes []history.Header // one per history file
	Dead      []string         // names of the clients that were killed
	// Readings are what servers and clients had counted before and at the end of the workload.
	Readings []Reading
	Clients  []ClientStats // what the nodes said of themselves at their end
	Cores    int           // of the machine that the clients run on; 0: not known
	Start    int64         // ns: the workload was let go
	End      int64         // ns: no more acquires were begun

	still *standstills // whole when the checkers finish; nil where nothing is known of them
}

// Process finds the header of a process by name.
func (r Run) Process(name string) (history.Header, bool) {
	for _, p := range r.Processes {
		if p.Process == name {
			return p, true
		}
	}
	return history.Header{}, false
}

// Checker judges one property from the events of a run in the order of time. It is used once.
type Checker interface {
	// Observe takes the next event; the pointer is only valid during the call.
	Observe(e *history.Event)
	// Finish returns the finding.
	Finish() Finding
}

// ProcessChecker is a Checker that must know which process an event comes from. ObserveFrom is called in place of
// Observe.
type ProcessChecker interface {
	// ObserveFrom takes the next event and the header of the file that it comes from.
	ObserveFrom(process *history.Header, e *history.Event)
}

// CheckerKind is an entry of the list of checkers.
type CheckerKind struct {
	Name string
	Doc  string // the property, in one sentence
	// Counts and Measures are the names that it yields in every run; null where the property was not judged.
	Counts   []string
	Measures []string
	New      func(Run) Checker
}

// Finding is what one checker found.
type Finding struct {
	Checker   string              `json:"checker"`
	Verdict   Verdict             `json:"verdict"`
	Counts    map[string]*int64   `json:"counts,omitempty"`   // nil: not judged
	Measures  map[string]*float64 `json:"measures,omitempty"` // nil: not judged
	Skipped   string              `json:"skipped,omitempty"`  // why the property does not apply to this run
	Chances   map[string]Chances  `json:"chances,omitempty"`  // of a count: how often it could have gone up
	Excused   map[string]Excused  `json:"excused,omitempty"`  // of a count: what only a standstill of the machine explains
	Warnings  []string            `json:"warnings,omitempty"`
	Witnesses []Witness           `json:"witnesses,omitempty"` // at most MaxWitnesses

	ledger *ledger          // what explains the violations of each lock; nil where nothing is known of that
	byLock map[uint16]int64 // what was found of each lock, where all counts of the finding rest upon other checkers' excuses
}

// Chances is what a zero is worth: how often a count could have gone up.
type Chances struct {
	N  int64  `json:"n"`
	Of string `json:"of"` // what they are, in words: "grants that ..."
}

// MaxWitnesses bounds the witnesses of one finding; the counts are complete.
const MaxWitnesses = 10

// Witness is the very events that prove a violation.
type Witness struct {
	Kind   string          `json:"kind"` // "double_grant", "overlapping_hold", "stale_write", "fence_save", ...
	Lock   string          `json:"lock"`
	Text   string          `json:"text"` // one sentence with times relative to the start of the run
	From   int64           `json:"from"` // ns: the violation begins
	To     int64           `json:"to"`   // ns: and ends
	Holds  []HoldRef       `json:"holds,omitempty"`
	Events []history.Event `json:"events"`
	// Observed is what the service said that proves it.
	Observed []history.Observation `json:"observed,omitempty"`
}

// HoldRef is one hold of a witness, as it is drawn.
type HoldRef struct {
	User   history.User `json:"user"`
	Grant  uint32       `json:"grant"`
	Issued int64        `json:"issued"`
	Start  int64        `json:"start"` // ns: acquire ok
	End    int64        `json:"end"`   // ns: release invoke, loss or death; 0 when it never ended
	Valid  int64        `json:"valid"` // the latest end of its validity
	Token  uint64       `json:"token"`
}
