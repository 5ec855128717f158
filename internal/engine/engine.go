// Package engine is the run loop: up, load, chaos, heal, settle. It leaves a run directory for results to judge, and
// knows backends, workloads and faults only by their contracts.
//
// Package plan decides what a run does, without starting anything. A run carries it out. Its parts own their state:
//
//   - package deployment: the cluster and the service; package kept: servers that an earlier run left
//   - package control: clients and resource behind their control streams; package live: the grants they hold
//   - readings: what servers, clients and the resource count and store
//   - schedule and stepRunner decide when an injection comes; injector makes and heals it
//   - observer asks the service for the steps; package watch: clocks and sessions
//   - package rundir: what is written into the run directory; reporter: what is shown meanwhile
package engine

import (
	"log/slog"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/engine/kept"
	"github.com/lockquake/lockquake/internal/engine/plan"
)

// Aliases of types of package plan, for callers of this package.
type (
	// Plan is a checked run.
	Plan = plan.Plan
	// Request is the input of a plan.
	Request = plan.Request
	// Catalog lists what a request can name.
	Catalog = plan.Catalog
	// Attached is an external service.
	Attached = plan.Attached
	// UsageError says that a request is invalid.
	UsageError = plan.UsageError
	// MissingError says what this machine lacks for it.
	MissingError = plan.MissingError
)

// KeptServers are servers that runs use one after another.
type KeptServers = kept.Servers

// Options is the request for one run.
type Options struct {
	Request
	ProviderReason string                   // why this provider was chosen, for env.json
	Out            string                   // folder of all runs
	Replay         string                   // the command that repeats the run, without the seed
	Drawn          func(file string) string // the command that runs the drawn schedule in a file; nil: none is recorded
	Version        string                   // of lockquake
	Started        time.Time                // wall clock, names the run directory
	Began          int64                    // ns of the run's clock: when the run was requested; 0 is the call of Run
	Libraries      map[string]string        // module -> version of what the lock is made of, for env.json
	// ClientModules returns the modules that a client of a lock is made of: lockquake's own client reports those of
	// all locks.
	ClientModules func(backend, lock string) []string
	Program       string       // the clients' program, if it is not the running program: a path or an image
	NoRecord      bool         // only count grants: the baseline of the recording benchmark
	Kept          *KeptServers // servers that the run before left, and this one leaves; may be nil
	Log           *slog.Logger
	Progress      func(Progress)
	// Events gets the events of each client as they come, in batches that it must not keep. Several clients call it
	// at once. It may be nil.
	Events func(batch []history.Event)
}

// Check makes the plan of a run, without starting anything. Its errors are UsageError and MissingError.
func Check(o Options) (*Plan, error) { return plan.Check(o.Request) }

// Progress is the progress of a run.
type Progress struct {
	Phase    string        // up, load, heal, settle, down
	Elapsed  time.Duration // of the load
	Total    time.Duration // of the load; 0 if steps decide
	Grants   int64
	Held     int           // grants that users hold
	Faults   int           // injections made or tried
	Standing int           // of them, those not yet healed
	Left     time.Duration // of several runs: estimated time left; 0: unknown
	Text     string        // what happened just now, or ""
}

// deadlines bound the phases around the load:
//   - collect is how long a stream may stay open after all nodes are gone;
//   - answer is how long after its own deadline a client may still answer a step.
type deadlines struct{ hello, ready, recover, stop, close, collect, answer time.Duration }

// generous are the deadlines of every run: a busy machine must not turn into a wrong result.
var generous = deadlines{
	hello: 30 * time.Second, ready: 60 * time.Second, recover: 45 * time.Second, stop: 20 * time.Second,
	close:   60 * time.Second,
	collect: 10 * time.Second, answer: 2 * time.Second,
}
