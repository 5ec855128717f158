// Package all lists all backends.
package all

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/etcd"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/memory"
	"github.com/lockquake/lockquake/backends/postgres"
	"github.com/lockquake/lockquake/backends/redis"
	"github.com/lockquake/lockquake/backends/zookeeper"
)

// All returns every backend, sorted by name.
func All() []listed.Backend {
	list := []listed.Backend{
		etcd.Backend(),
		memory.Backend(),
		zookeeper.Backend(),
		postgres.Backend(),
	}
	list = append(list, redis.Backends()...)
	slices.SortFunc(list, func(a, b listed.Backend) int { return strings.Compare(a.Name, b.Name) })
	return list
}
