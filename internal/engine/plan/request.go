package plan

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// Catalog lists everything that a scenario may name.
type Catalog struct {
	Backends  []listed.Backend
	Workloads []workloads.Kind
	Faults    []chaos.Kind
	Resources []resource.Kind
	Checkers  results.Checkers // a scenario's expectations are about their counts
}

// names lists the available names of a kind, for errors.
func names[T any](list []T, name func(T) string) string {
	var out []string
	for _, x := range list {
		out = append(out, name(x))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Request is the input of a plan.
type Request struct {
	Scenario scenarios.Scenario
	Provider cluster.Provider
	Catalog  Catalog
	Images   map[string]string // image key -> image, instead of the project's own
	// the programs of the clients, as Scenario.Programs: the path of each built from Go sources, else ""
	Built    []string
	Keep     bool      // leave the nodes up after the run
	Attached *Attached // the servers, if external; nil: the run starts its own
}

// UsageError says that the scenario or the command line is wrong; nothing was started.
type UsageError struct{ Text string }

// Error returns what is wrong, where, and what would be right.
func (e UsageError) Error() string { return e.Text }

// MissingError says that something needed is not there: an engine, a program, a capability, a service that serves.
type MissingError struct {
	Text string
	Err  error // the part of it about the machine alone, if known
}

// Error returns what is missing and what would help.
func (e MissingError) Error() string { return e.Text }

// Unwrap returns Err.
func (e MissingError) Unwrap() error { return e.Err }
