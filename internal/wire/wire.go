// Package wire is the control stream between the supervisor and its nodes, which are clients and resources. It
// consists of versioned frames of JSON Lines over standard input and output, with the node's events between them.
// docs/protocol.md describes it for clients in other languages.
package wire

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/lockquake/lockquake/history"
)

// Version is the version of the protocol. A node with another major version is rejected.
const Version = 1

// The types of frames from the supervisor to a node.
const (
	TypeStart   = "start"   // Start: what to do; the node connects and answers TypeReady
	TypeGo      = "go"      // Go: begin the workload
	TypeStop    = "stop"    // no more acquires; finish what is held, send what is buffered, answer TypeDone, end
	TypeCommand = "command" // Command: command mode
	// Ping: answer TypePong at once; asked between hello and start if clocks may differ, and around clock faults
	TypePing = "ping"
)

// The types of frames from a node to the supervisor.
const (
	TypeHello  = "hello"  // Hello: the first frame, sent unasked
	TypeReady  = "ready"  // Ready: the node is connected
	TypeResult = "result" // Result: answer to one Command
	TypePoint  = "point"  // Point: a user reached an armed point
	TypeEvent  = "event"  // history.Line, if events travel as JSON Lines
	TypeLog    = "log"    // Log: a line for the node's log
	TypeDone   = "done"   // Done: the last frame
	TypeFailed = "failed" // Failed: the node cannot go on
	TypePong   = "pong"   // Pong: answer to one Ping
)

// Formats of events.
const (
	FormatRecords = "records" // batches of 64-byte records, see BatchMark
	FormatJSONL   = "jsonl"   // frames of TypeEvent
)

// BatchMark is the first byte of a batch of records on the stream. Four bytes with the number of records (little
// endian) and the records follow. Every other frame begins with '{' and ends with a newline.
const BatchMark byte = 0x01

// Frame is one JSON line: its type and the one part that belongs to it.
type Frame struct {
	Type    string        `json:"type"`
	Hello   *Hello        `json:"hello,omitempty"`
	Start   *Start        `json:"start,omitempty"`
	Ready   *Ready        `json:"ready,omitempty"`
	Go      *Go           `json:"go,omitempty"`
	Command *Command      `json:"command,omitempty"`
	Ping    *Ping         `json:"ping,omitempty"`
	Pong    *Pong         `json:"pong,omitempty"`
	Result  *Result       `json:"result,omitempty"`
	Point   *Point        `json:"point,omitempty"`
	Event   *history.Line `json:"event,omitempty"`
	Log     *Log          `json:"log,omitempty"`
	Done    *Done         `json:"done,omitempty"`
	Failed  *Failed       `json:"failed,omitempty"`
}

// Hello introduces a node.
type Hello struct {
	Version  int      `json:"version"` // of the protocol; Conn.Send fills it
	Process  string   `json:"process"` // "lockquake client"
	BootID   string   `json:"boot_id"`
	TimeNS   string   `json:"time_ns"`
	Now      int64    `json:"now"`     // the node's CLOCK_MONOTONIC, ns
	Formats  []string `json:"formats"` // of events, the preferred first
	PID      int      `json:"pid"`     // in the node's own pid namespace
	Software string   `json:"software"`
	// Libraries lists the modules, with their versions, that the node's locks are made of; a resource has none.
	Libraries map[string]string `json:"libraries,omitempty"`
	// Points lists the points that a client announces beside those that every client has: the lock's own, within its
	// acquire and release.
	Points []string `json:"points,omitempty"`
	// Orders lists the orders of Optional that a client supports.
	Orders []string `json:"orders,omitempty"`
	// Tells says that this client's locks notify their holders of a loss. lockquake's own client leaves it unset:
	// there the lock's LossSignal says so.
	Tells bool `json:"tells,omitempty"`
	// Keeps says that this client's grants do not end while its process lives, even without renewals by the holder,
	// as when a session is kept alive.
	Keeps bool `json:"keeps,omitempty"`
	// Permits says that this client's locks have the number of permits that its access names.
	Permits bool `json:"permits,omitempty"`
	// Elsewhere says that this client keeps its locks under other keys than those queried at the service.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Hung bounds the time to the next grant after the last call of a user that hangs while its process lives. nil: the
	// client declares no bound. A client that declares one renews grants by itself, as with Keeps.
	Hung *Bound `json:"hung,omitempty"`
}

// Bound is a time that may depend on the TTL, which a client does not know yet when it sends its hello.
type Bound struct {
	TTLs int   `json:"ttls"`
	Plus int64 `json:"plus_ns"`
}

// Of returns the bound for a TTL.
func (b Bound) Of(ttl time.Duration) time.Duration {
	return time.Duration(b.TTLs)*ttl + time.Duration(b.Plus)
}

// Takes reports whether the client supports an order.
func (h *Hello) Takes(order string) bool {
	return !slices.Contains(Optional, order) || slices.Contains(h.Orders, order)
}

// Ping asks a node for its clock.
type Ping struct {
	ID int `json:"id"`
}

// Pong holds a node's clocks. Wall and Mono are as the node's own program reads them, which a clock fault can move;
// both are 0 if it does not report them.
type Pong struct {
	ID   int   `json:"id"`
	Now  int64 `json:"now"`            // the node's CLOCK_MONOTONIC, ns
	Wall int64 `json:"wall,omitempty"` // ns since 1970
	Mono int64 `json:"mono,omitempty"` // CLOCK_MONOTONIC as well, ns
}

// Ready says that a node is connected and can be started.
type Ready struct {
	Address string `json:"address,omitempty"` // host:port that a resource listens on
}

// Start tells a node its identity and its task.
type Start struct {
	Version  int             `json:"version"` // of the protocol; Conn.Send fills it
	Name     string          `json:"name"`    // node name, "client-1"
	Index    int             `json:"index"`   // client index, from 0
	Format   string          `json:"format"`  // of events
	Seed     uint64          `json:"seed"`    // of this process
	Locks    []string        `json:"locks"`   // all lock names of the run; events hold an index into it
	Access   json.RawMessage `json:"access,omitempty"`
	Workload *Workload       `json:"workload,omitempty"` // nil: command mode only
	Resource *Resource       `json:"resource,omitempty"` // what the lock protects
	Guard    string          `json:"guard,omitempty"`    // for a resource node
	// Terms holds the workload's own numbers, such as "stock", for a resource that needs them.
	Terms   map[string]int64 `json:"terms,omitempty"`
	Renew   bool             `json:"renew,omitempty"`     // clients renew their grants if the lock can
	Check   string           `json:"check,omitempty"`     // "", "signal" or "validity": checked before each write
	Margin  int64            `json:"margin_ns,omitempty"` // with "validity": how much of it must be left
	Timeout int64            `json:"timeout_ns"`          // of one acquire, release, read or write
	Record  bool             `json:"record"`              // false: count only (benchmarks)
	TTL     int64            `json:"ttl_ns,omitempty"`    // of the run's grants, for all nodes; 0: not known
	// OwnClock says that a fault of the run sets the client's monotonic clock back. Events are then stamped by a
	// clock that the fault does not reach.
	OwnClock bool `json:"own_clock,omitempty"`
}

// Workload is workload mode: Users loops of the named workload.
type Workload struct {
	Use    string          `json:"use"`
	Users  int             `json:"users"`
	Total  int             `json:"total"` // users of all clients together; a rate is divided by it
	Params json.RawMessage `json:"params,omitempty"`
}

// Resource says how a client reaches the protected resource.
type Resource struct {
	Use     string `json:"use"`
	Address string `json:"address"` // host:port, or the run's id in process
	Guard   string `json:"guard"`
	// Password is the resource's password; "" if it has none.
	Password string `json:"password,omitempty"`
}

// Go starts the workload at Time; users must not begin before it.
type Go struct {
	Time int64 `json:"time"` // ns of the run's clock
}

// Command is one order to a named user. Commands of one user are carried out in order, those of several side by side.
type Command struct {
	ID int `json:"id"`
	// acquire, reenter, release, renew, check, read, write, arm, continue, cancel, close, release-unheld, final,
	// notifications
	Do      string `json:"do"`
	User    int    `json:"user"`
	Lock    int    `json:"lock"`             // index of the lock
	Mode    string `json:"mode,omitempty"`   // for acquire: "shared"; "" is exclusive
	Value   int64  `json:"value,omitempty"`  // for write
	Timeout int64  `json:"timeout_ns"`       // of the operation; 0: Start.Timeout
	Point   string `json:"point,omitempty"`  // for arm and continue
	Action  string `json:"action,omitempty"` // for arm: ActionWait or ActionDie
}

// The orders of a Command.
const (
	DoAcquire  = "acquire"
	DoReenter  = "reenter" // an acquire by a user that may already hold the lock and then takes it again
	DoRelease  = "release"
	DoRenew    = "renew"
	DoCheck    = "check"
	DoRead     = "read"
	DoWrite    = "write"
	DoArm      = "arm"      // the next time that it reaches Point, the user waits or its process dies
	DoContinue = "continue" // let a waiting user go on
	DoCancel   = "cancel"   // cancel the acquire under way; at once, before all waiting orders
	DoClose    = "close"    // close the lock object, and free what it holds; the user takes no more orders
	// DoReleaseUnheld releases a lock that the user does not hold: the grant that it released last, or none.
	DoReleaseUnheld = "release-unheld"
	DoFinal         = "final" // resource only: the value and number of applied writes of Lock
	// DoNotifications asks a client, not one of its users, how many watch notifications it has received.
	DoNotifications = "notifications"
)

// Optional lists the orders that not every client supports.
var Optional = []string{DoRenew, DoCheck, DoCancel, DoClose, DoReenter, DoReleaseUnheld}

// What a user does at an armed point.
const (
	ActionWait = "wait" // stop there until a DoContinue
	ActionDie  = "die"  // the process kills itself there with SIGKILL
)

// The outcomes of a Result.
const (
	OutcomeOK   = "ok"   // it was done
	OutcomeFail = "fail" // it was certainly not done
	OutcomeInfo = "info" // the outcome is unknown
)

// Result answers a Command.
type Result struct {
	ID      int    `json:"id"`
	Outcome string `json:"outcome"` // OutcomeOK, OutcomeFail or OutcomeInfo
	Error   string `json:"error,omitempty"`
	Value   int64  `json:"value,omitempty"`
	Count   int64  `json:"count,omitempty"` // final: applied writes; notifications: how many
	Grant   string `json:"grant,omitempty"` // acquire: the lock's own id of the grant, known to the service
	// Epoch and Number say, in the final of a replica, when the value was written: the epoch, and the write's number
	// within it.
	Epoch  uint64 `json:"epoch,omitempty"`
	Number int64  `json:"number,omitempty"`
}

// Point says that a user waits or dies at an armed point. All events before it were sent before it.
type Point struct {
	User  int    `json:"user"`
	Point string `json:"point"`
	Time  int64  `json:"time"` // ns of the run's clock
}

// Log is a line for people.
type Log struct {
	Level string `json:"level"`
	Text  string `json:"text"`
}

// Done is the last frame of a node.
type Done struct {
	Recorded  int64            `json:"recorded"`         // events sent
	Dropped   int64            `json:"dropped"`          // events for which there was no room
	Stall     int64            `json:"stall_ns"`         // longest time that this process did not run
	Cycles    int64            `json:"cycles"`           // grants, counted even if nothing is recorded
	Errors    map[string]int64 `json:"errors,omitempty"` // error texts and their number, at most 20 texts
	Lag       int64            `json:"lag_ns"`           // open loop: the worst lag of the schedule itself
	CPU       int64            `json:"cpu_ns"`           // user and system time of this process
	Unstarted int64            `json:"unstarted"`        // open loop: arrivals that never got a user before the end
}

// Failed says why a node cannot go on.
type Failed struct {
	Error string `json:"error"`
}
