// Package redis is Redis as a lock service: it joins the locks of package locks with the topologies of package
// servers. Package access has what both share.
package redis

import (
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/locks"
	"github.com/lockquake/lockquake/backends/redis/servers"
)

// Backends returns all topologies of Redis. Each has the same locks, except the one whose servers have no common
// client.
func Backends() []listed.Backend {
	return []listed.Backend{Single(), Sentinel(), Cluster(), Five()}
}

// Single returns one server.
func Single() listed.Backend { return servers.Single(locks.OneServer()) }

// Sentinel returns a primary, its replicas, and Sentinels that promote one of these.
func Sentinel() listed.Backend {
	return servers.Sentinel(locks.WithFailover(servers.SentinelDetection, servers.FailoverTime))
}

// Cluster returns Redis Cluster.
func Cluster() listed.Backend {
	return servers.Cluster(locks.WithFailover(servers.ClusterDetection, servers.FailoverTime))
}

// Five returns independent servers.
func Five() listed.Backend { return servers.Five(locks.Quorum()) }
