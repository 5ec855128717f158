// Package nodes determines the nodes of a verb's runs from its flags: the provider, images, programs that replace the
// built-in client, an attached service. Its catalog lists everything that a scenario may name.
package nodes

import (
	"slices"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/backends/listed"
	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/workloads"
	resources "github.com/lockquake/lockquake/workloads/resource/all"
)

// Catalog returns everything that a scenario may name.
func Catalog() engine.Catalog {
	return engine.Catalog{
		Backends: append(all.All(), external.Backend()), Workloads: workloads.All(), Faults: faults.Kinds(),
		Resources: resources.All(), Checkers: checkers.All(),
	}
}

// OwnBackends returns the backends whose locks are built in. The locks of the remaining one are in external programs.
func OwnBackends(catalog engine.Catalog) []backends.Backend {
	return slices.DeleteFunc(listed.Clients(catalog.Backends),
		func(b backends.Backend) bool { return b.Name == external.Name })
}

// BackendNames returns the names of backends.
func BackendNames(list []backends.Backend) []string {
	var names []string
	for _, b := range list {
		names = append(names, b.Name)
	}
	return names
}
