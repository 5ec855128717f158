// Package engine is the run loop: up, load, chaos, heal, settle. It leaves a run directory for results to judge, and
// knows backends, workloads and faults by their contracts alone.
//
// Package plan says what will be done, with nothing started. A run carries it out. Its parts own their state:
//
//   - package deployment: the cluster and the service; package kept: servers that an earlier run left
//   - package control: clients and resource behind their control streams; package live: which grants they have
//   - readings: what servers, clients and the resource count and keep
//   - schedule and stepRunner say when an injection comes; injector makes and heals it
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

// These are package plan's, for callers of this package.
type (
	// Plan is a checked run.
	Plan = plan.Plan
	// Request is what a plan is made of.
	Request = plan.Request
	// Catalog lists what a request can name.
	Catalog = plan.Catalog
	// Attached is a service of somebody else's.
	Attached = plan.Attached
	// UsageError says that a request can be no plan.
	UsageError = plan.UsageError
	// MissingError says what this machine lacks for it.
	MissingError = plan.MissingError
)

// KeptServers are servers that runs use one after another.
type KeptServers = kept.Servers

// Options is one run as it was asked for.
type Options struct {
	Request
	ProviderReason string                   // why this provider, for env.json
	Out            string                   // folder of all runs
	Replay         string                   // the command that repeats the run, but for the seed
	Drawn          func(file string) string // the command that runs the drawn schedule in a file; nil: none is told
	Version        string                   // of lockquake
	Started        time.Time                // wall clock, names the run directory
	Began          int64                    // ns of the run's clock: when the run was asked for; 0 is the call of Run
	Libraries      map[string]string        // module -> version of what the lock is made of, for env.json
	// ClientModules names the modules that a client of a lock is made of: lockquake's own client tells of all locks.
	ClientModules func(backend, lock string) []string
	Program       string       // what ran the clients, where it is not the running program: a path or an image
	NoRecord      bool         // count grants only: the baseline of the recording benchmark
	Kept          *KeptServers // servers that the run before left, and this one leaves; nil: none
	Log           *slog.Logger
	Progress      func(Progress)
	// Events takes the events of each client as they come, in batches that it must not keep. Several clients call it at
	// once. nil: nobody asked.
	Events func(batch []history.Event)
}

// Check makes the plan of a run, without starting anything. Its errors are UsageError and MissingError.
func Check(o Options) (*Plan, error) { return plan.Check(o.Request) }

// Progress is how far a run has come.
type Progress struct {
	Phase    string        // up, load, heal, settle, down
	Elapsed  time.Duration // of the load
	Total    time.Duration // of the load; 0 where steps decide
	Grants   int64
	Held     int           // grants that users have in hand
	Faults   int           // injections that were made or tried
	Standing int           // of them, those that are not yet healed
	Left     time.Duration // of several runs: about how long they will still take; 0: not told
	Text     string        // what happened just now, or ""
}

// deadlines bound the phases around the load. collect is how long a stream may stay open after all nodes are gone, and
// answer is how long after its own deadline a client may still answer a step.
type deadlines struct{ hello, ready, recover, stop, close, collect, answer time.Duration }

// generous are the deadlines of every run: a busy machine must not turn into a wrong result.
var generous = deadlines{
	hello: 30 * time.Second, ready: 60 * time.Second, recover: 45 * time.Second, stop: 20 * time.Second,
	close:   60 * time.Second,
	collect: 10 * time.Second, answer: 2 * time.Second,
}
