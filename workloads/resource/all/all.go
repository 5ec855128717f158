// Package all is the list of resources.
package all

import (
	"github.com/lockquake/lockquake/workloads/resource"
	"github.com/lockquake/lockquake/workloads/resource/etcd"
	"github.com/lockquake/lockquake/workloads/resource/objects"
	"github.com/lockquake/lockquake/workloads/resource/postgres"
	"github.com/lockquake/lockquake/workloads/resource/redis"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

// All returns every resource.
func All() []resource.Kind {
	return append(register.Kinds(), postgres.Kind(), redis.Kind(), etcd.Kind(), objects.Kind())
}
