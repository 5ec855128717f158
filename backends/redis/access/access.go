// Package access holds what the locks on Redis and the harness around its servers share: names, keys, parameters, and
// how a client reaches a server. It depends on neither side.
package access

// Topologies of Redis, by the name of their backend.
const (
	Single   = "redis"
	Sentinel = "sentinel"
	Cluster  = "rediscluster"
	Five     = "redlock"
)

// The names of ports: for clients, and of a Sentinel.
const (
	Port         = "client"
	SentinelPort = "sentinel"
)

// Monitored is the name of the primary and its replicas in the Sentinels' configuration.
const Monitored = "lockquake"

// GoRedis is the Go module of the client library.
const GoRedis = "github.com/redis/go-redis/v9"

// Bounds of the number of independent servers; fewer have no useful majority.
const (
	FewestServers = 3
	MostServers   = 9
)
