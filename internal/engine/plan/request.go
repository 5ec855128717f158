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

// Catalog is everything that a scenario may name.
type Catalog struct {
	Backends  []listed.Backend
	Workloads []workloads.Kind
	Faults    []chaos.Kind
	Resources []resource.Kind
	Checkers  results.Checkers // a scenario expects something of what they yield
}

// names lists what there is of a kind, for errors.
func names[T any](list []T, name func(T) string) string {
	var out []string
	for _, x := range list {
		out = append(out, name(x))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// Request is what a plan is made of.
type Request struct {
	Scenario scenarios.Scenario
	Provider cluster.Provider
	Catalog  Catalog
	Images   map[string]string // image key -> image, instead of the project's own
	// the programs of the clients, as Scenario.Programs: of each that is built of Go sources the path, else ""
	Built    []string
	Keep     bool      // leave the nodes up after the run
	Attached *Attached // the servers, where somebody else runs them; nil: the run starts its own
}

// UsageError says that the scenario or the command line is wrong; nothing was started.
type UsageError struct{ Text string }

// Error returns what is wrong, where, and what would be right.
func (e UsageError) Error() string { return e.Text }

// MissingError says that something needed is not there: an engine, a program, a capability, a service that serves.
type MissingError struct {
	Text string
	Err  error // what of it is about the machine alone, where that is known
}

// Error returns what is missing and what would help.
func (e MissingError) Error() string { return e.Text }

// Unwrap returns Err.
func (e MissingError) Unwrap() error { return e.Err }
