package history

// Observation is one answer that the service gave when it was asked from outside any fault: a line of observed.jsonl.
// Where a question is asked again and again, equal answers in a row are one observation.
type Observation struct {
	Step int    `json:"step"` // of the scenario, from 1: on whose account it was asked
	By   string `json:"by"`   // ByAwait, ByGrant, ByAnswer, ByObserve or ByPoint
	Node string `json:"node"` // who was asked: a node, or Service
	Fact string `json:"fact"` // what it was asked for, such as "role" or "holder:lock-0"

	Answer string `json:"answer,omitempty"` // "": there was none
	Error  string `json:"error,omitempty"`  // why there was none

	Asked        int64 `json:"asked"`         // ns of CLOCK_MONOTONIC: the first question was sent
	Answered     int64 `json:"answered"`      // ns: its answer came
	LastAsked    int64 `json:"last_asked"`    // ns: the last question with this answer was sent
	LastAnswered int64 `json:"last_answered"` // ns: its answer came
	Count        int   `json:"count"`         // how many questions had this answer
	Gap          int64 `json:"gap_ns"`        // the longest time from one such answer to the next question

	// EndsIn is the remaining life of the grant in ns, as the service as a whole reported it with the first answer; nil
	// if it did not.
	EndsIn *int64 `json:"ends_in_ns,omitempty"`

	// User and Grant name the grant whose id the answer is, where that is known.
	User  *User  `json:"user,omitempty"`
	Grant uint32 `json:"grant,omitempty"`
}

// Why something was asked.
const (
	ByAwait   = "await"   // a step waited for the answer
	ByGrant   = "grant"   // a user had just been granted a lock
	ByAnswer  = "answer"  // a user had just been told what came of its acquire, renewal or release
	ByObserve = "observe" // a step wanted it on record
	// a user came to a point, or went on from it: the fact is the point's name, the answer reached, died or left
	ByPoint = "point"
)

// What a user did at a point.
const (
	PointReached = "reached" // it is held there
	PointDied    = "died"
	PointLeft    = "left"
)

// Facts about a lock, which a run is judged by. The name of the lock stands behind them. Not every service knows them.
const (
	// FactHolder tells the id of the grant that has the lock, or "none".
	FactHolder = "holder:"
	// FactKeys tells the ids of all grants that are there, those among them that too few servers have for a user to
	// have the lock; or "none".
	FactKeys = "keys:"
	// FactTakes tells whether the node takes a write where the lock is kept: "true", or the word with which it refuses.
	FactTakes = "takes-writes:"
)

// Service is asked in place of a node for what the service as a whole has of a lock: by what its grants depend on, such
// as the primary or a majority.
const Service = "service"
