// Package scenarios parses the YAML description of a run, strictly, and holds the scenarios that come with lockquake.
// It knows no backend, workload or fault by name: their own parameters stay YAML nodes here.
package scenarios

import (
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/lockquake/lockquake/internal/node"
)

// Scenario is one run as requested.
type Scenario struct {
	Name   string
	File   string // where it came from, for error messages
	Claim  string // what the run shows, in words
	Source string // where the argument comes from: a text, a bug report
	// About is the subject of headline, words and picture: counts, measures, and events such as "renew ok". Empty
	// means the names in Expect.
	About    []string
	Backend  Backend
	Workload Workload
	Chaos    []Injection
	Random   *Random // nil: the schedule is written down, in Chaos
	Overlap  string  // "" or "any", "other-nodes", "never": how the schedule's injections may stand together
	Spare    string  // "" or "majority": which servers they leave alone
	Steps    []Step
	Run      Run
	Hosts    node.Hosts // placement of the nodes, if the provider has several machines
	Expect   []Expectation
	// Properties are questions about the lock whose answers are reported and decide nothing.
	Properties []Property
	Same       string // of a twin: why one run may meet both its expectations and the story's; "": no run can
	Text       []byte // the YAML as it will be written into the run directory, twins and --set applied

	src  *source          // of the nodes
	root *ast.MappingNode // parsed YAML, for variants
}

// Folder returns the base of relative names in the scenario: the folder of its file, or the current one if it has no
// file on disk.
func (s Scenario) Folder() string {
	if info, err := os.Stat(s.File); err == nil && info.Mode().IsRegular() {
		return filepath.Dir(s.File)
	}
	return "."
}

// Backend is the `backend:` section.
type Backend struct {
	Use   string
	Lock  string        // "" is the backend's default
	Nodes int           // 0 is the backend's default
	TTL   time.Duration // default 10s
	// Permits is how many users may hold one lock at once; the judge uses it. Default 1
	Permits int
	Limits  Limits `yaml:",inline"` // of each server
	Client  Client `yaml:"-"`       // required if only the client knows the service's locks
	Params  Params `yaml:"-"`       // the backend's own keys
}

// Workload is the `workload:` section. Use is "" if only steps act.
type Workload struct {
	Use      string
	Clients  int           // processes; default 1
	Users    int           // users of each process; default 1
	Renew    bool          // clients extend their grants if the lock can
	Check    string        // "", "signal" or "validity": what users check before a write
	Margin   time.Duration // with "validity": the least remaining validity for a write
	Timeout  time.Duration // of one acquire, release, read or write; default 10s
	Alike    bool          // client processes have one process id, host name and, to the second, start time
	Limits   Limits        `yaml:",inline"` // of each client process
	Client   Client        `yaml:"-"`
	Resource Resource      `yaml:"-"`
	Params   Params        `yaml:"-"` // the workload's own keys
}

// Resource is what the lock protects. Use is "" for nothing.
type Resource struct {
	Use    string // "register"
	Guard  string // "none", "fence" or "fence-writes"; default "none"
	Params Params `yaml:"-"`
}

// Injection is one entry of the `chaos:` list.
type Injection struct {
	Use    string
	On     string        // selectors or node names, with commas between
	At     time.Duration // from the start of the workload
	For    time.Duration // 0: not healed before the end
	Every  time.Duration // 0: once
	Jitter time.Duration // each start is moved by up to this much, from the seed
	Held   time.Duration // hits a holder once it has held its lock this long
	Params Params        // the fault's own keys
	Path   string        // of its key in the scenario, for messages
}

// Step is one entry of the `steps:` list. Exactly one of Do, Inject, Heal, Await and Observe is set.
type Step struct {
	Line int `yaml:"-"` // in the file, for messages

	Do   string // acquire, read, check, write, release, renew, arm, continue, cancel, close, release-unheld
	User string // the acting user, or the subject of an await: a name such as "A"; each name is a client of its own
	Lock string // default "lock-0"
	Mode string // for acquire: "exclusive" (default) or "shared"
	// Reentrant, for acquire: the user may already hold the lock, and then takes it once more
	Reentrant bool
	Value     int64 // for write
	// for release-unheld: OwnObject (default), or OtherObject: another lock object in the user's process
	Object string
	// for write, in place of Value: added to the value that the user last read under that lock; 0 is none
	Plus int64
	// "ok" (default), "fail", "info" or "any": another outcome makes the run unknown. NotOK: an ok makes the run fail
	Outcome string
	// Demanded says that "ok" is written out. If the step certainly failed and only the lock is to blame, the run
	// fails.
	Demanded bool   `yaml:"-"`
	Async    bool   // go on without waiting for the outcome
	Point    string // for arm and continue
	Action   string // for arm: "wait" or "die"

	Inject string // name of a fault
	On     string `yaml:"-"` // for inject: selectors, node names or users' names, with commas between
	As     string // name of this injection, for heal
	Params Params `yaml:"-"` // the fault's own keys

	Heal string // the name given by `as`

	Await string        // "event", "validity-over", "fact", "point", "elapsed", "bitten" or "led"
	Event string        // for await event: "acquire ok", "lost", ...
	Fact  string        // for await fact
	Node  string        // for await fact
	Is    string        // for await fact; default "true", unless IsNot is given
	IsNot string        `yaml:"is_not"` // for await fact: any answer but this one
	For   time.Duration // for await elapsed
	Of    string        // for await bitten and led: the name given by `as`

	Observe string // a fact to record; On lists the nodes to ask
	// for observe: the interval between questions until the steps are over; 0: each node is asked once
	Every time.Duration

	Within time.Duration // deadline of the step; default 10s
}

// Property is a question about the lock: the answer is yes if the expectation is met.
type Property struct {
	Name string // such as "renews for hung users"
	By   Expectation
}

// Run is the `run:` section.
type Run struct {
	For    time.Duration // how long the workload runs; with steps only: until the last step
	Seed   uint64        // 0: drawn and recorded
	Settle time.Duration // between heal and the final read; default 1s
	// the part of For that no figure includes: throughput, latency, cost; violations are judged over everything
	Warmup time.Duration
}

// Takes estimates how long a run takes on running servers, without the provider's own time. Steps have no fixed
// length; most end within ten seconds.
func (s Scenario) Takes() time.Duration {
	const ofSteps = 10 * time.Second
	takes := s.Run.Settle
	if s.Workload.Use != "" {
		takes += s.Run.For
	}
	if len(s.Steps) > 0 {
		takes += ofSteps
	}
	return takes
}

// Expectation is one entry of `expect:`.
type Expectation struct {
	Name   string  // of a count or measure, or "judged"
	Op     string  // "=", "<", "<=", ">", ">="
	Value  float64 // in the unit below; durations in ms
	Unit   string  // "", "ms" or "%"
	Text   string  // as written
	Forced bool    // a default, not named by the scenario
}
