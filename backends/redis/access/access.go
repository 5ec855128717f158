// Package access is what the locks on Redis and the harness around its servers share: names, keys, parameters, and how
// a client reaches a server. It knows neither side.
package access

// Topologies of Redis, by the name of their backend.
const (
	Single   = "redis"
	Sentinel = "sentinel"
	Cluster  = "rediscluster"
	Five     = "redlock"
)

// The names of ports: that of clients, and that of a Sentinel.
const (
	Port         = "client"
	SentinelPort = "sentinel"
)

// Monitored is the name under which the Sentinels know the primary and its replicas.
const Monitored = "lockquake"

// GoRedis is the Go module of the client.
const GoRedis = "github.com/redis/go-redis/v9"

// The numbers of independent servers that make a majority worth having.
const (
	FewestServers = 3
	MostServers   = 9
)
