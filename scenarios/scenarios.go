// Package scenarios reads the paragraph that describes a run, strictly, from its YAML form, and has the scenarios
// that come with lockquake. It knows no backend, workload or fault by name: their own parameters stay YAML nodes
// here.
package scenarios

import (
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/lockquake/lockquake/internal/node"
)

// Scenario is one run as it was asked for.
type Scenario struct {
	Name   string
	File   string // where it came from, for error messages
	Claim  string // what the run shows, in words
	Source string // where the argument comes from: a text, a bug report
	// About is what headline, words and picture tell first: counts, measures, and events such as "renew ok". None: what
	// Expect names.
	About    []string
	Backend  Backend
	Workload Workload
	Chaos    []Injection
	Random   *Random // nil: the schedule is written down, in Chaos
	Overlap  string  // "" or "any", "other-nodes", "never": how the schedule's injections may stand together
	Spare    string  // "" or "majority": which servers they leave alone
	Steps    []Step
	Run      Run
	Hosts    node.Hosts // on which machines the nodes are to be, where the provider has several
	Expect   []Expectation
	Same     string // of a twin: why one run may meet both its own expectations and the story's; "": no run can
	Text     []byte // the YAML as it will be written into the run directory, twins and --set applied

	src  *source          // of the nodes
	root *ast.MappingNode // what was read, for variants
}

// Folder is where relative names in the scenario begin: the folder of its file, or the current one where it has none on
// disk.
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
	// Permits is how many users may hold one lock at once, by which its grants are judged; default 1
	Permits int
	Limits  Limits `yaml:",inline"` // of each server
	Client  Client `yaml:"-"`       // the only one that knows the service's locks, where lockquake does not
	Params  Params `yaml:"-"`       // the backend's own keys
}

// Workload is the `workload:` section. Use is "" when only steps act.
type Workload struct {
	Use      string
	Clients  int           // processes; default 1
	Users    int           // users of each process; default 1
	Renew    bool          // clients extend their grants where the lock can
	Check    string        // "", "signal" or "validity": what users look at before a write
	Margin   time.Duration // with "validity": how much of it must be left then
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
	At     time.Duration // after the workload was let go
	For    time.Duration // 0: not healed before the end
	Every  time.Duration // 0: once
	Jitter time.Duration // each start is moved by up to this much, from the seed
	Held   time.Duration // a holder is hit once it has held its lock this long
	Params Params        // the fault's own keys
	Path   string        // of its key in the scenario, for messages
}

// Step is one entry of the `steps:` list. Exactly one of Do, Inject, Heal, Await and Observe is set.
type Step struct {
	Line int `yaml:"-"` // in the file, for messages

	Do   string // acquire, read, check, write, release, renew, arm, continue, cancel, close, release-unheld
	User string // who does it, or whom an await is about: a name such as "A"; each name is a client of its own
	Lock string // default "lock-0"
	Mode string // for acquire: "exclusive" (default) or "shared"
	// Reentrant, for acquire: the user may have the lock in hand, and then takes it once more
	Reentrant bool
	Value     int64 // for write
	// for release-unheld: OwnObject (default), or OtherObject: another lock object in the user's process
	Object string
	// for write, in place of Value: this much more than what the user read last under that lock; 0 is none
	Plus int64
	// "ok" (default), "fail", "info" or "any": anything else makes the run unknown; NotOK: an ok makes it fail
	Outcome string
	// Demanded says that "ok" is written out: where the lock certainly did not do it, and nothing is to blame but the
	// lock, the run fails.
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

	Observe string // a fact that is put on record; On lists the nodes to ask
	// for observe: from one question to the next, until the steps are over; 0: each node is asked once
	Every time.Duration

	Within time.Duration // deadline of the step; default 10s
}

// Run is the `run:` section.
type Run struct {
	For    time.Duration // how long the workload runs; with steps only: until the last step
	Seed   uint64        // 0: drawn, and written down
	Settle time.Duration // between heal and the final read; default 1s
	// how much of For is no part of any figure: throughput, latency, cost; violations are judged over everything
	Warmup time.Duration
}

// Takes is about how long a run takes on servers that stand, beside what its provider takes. Steps end when they are
// done, mostly within ten seconds.
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
	Forced bool    // a default that the scenario did not name
}
