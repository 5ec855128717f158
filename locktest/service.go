package locktest

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// Service is a service that Run starts, in one topology.
type Service struct {
	backend string
	// lock is lockquake's own lock with the same promises to the judge; tokenLock is the one whose grants have a
	// token.
	lock, tokenLock string
	ttl             time.Duration
	endpoints       func(backends.Access) []string
	voters          int    // number of nodes that a client asks for one operation; 0: one
	direct          string // conformance.Options.Direct
	named           bool   // the service can be asked about a lock, because its name is its key
	set             map[string]string
}

// With sets a key of the service, such as Etcd().With("version", "3.4"). docs/backends.md lists the keys.
func (s Service) With(key, value string) Service {
	s.set = maps.Clone(s.set)
	if s.set == nil {
		s.set = map[string]string{}
	}
	s.set[key] = value
	return s
}

// pairs returns the keys that were set, as "KEY=VALUE".
func (s Service) pairs() []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(s.set)) {
		out = append(out, key+"="+s.set[key])
	}
	return out
}

// usualTTL is short for the checks that wait for an expiry, and long enough for etcd and ZooKeeper.
const usualTTL = 2 * time.Second

// Redis is one Redis server. The endpoint is a URL, redis://:PASSWORD@HOST:PORT, for redis.ParseURL of go-redis and
// rueidis.ParseURL.
func Redis() Service {
	return Service{
		backend: "redis", lock: "set-px-lua", tokenLock: "set-px-incr", ttl: usualTTL, named: true,
		endpoints: redisURLs,
	}
}

// Redlock is five independent Redis servers. Each endpoint is a URL as for Redis.
func Redlock() Service {
	return Service{
		backend: "redlock", lock: "redlock", ttl: usualTTL, named: true,
		endpoints: redisURLs, voters: 5,
	}
}

// RedisCluster is a Redis Cluster of three primaries, each with a replica. The endpoints are the URLs of all six, as
// for Redis.
func RedisCluster() Service {
	return Service{
		backend: "rediscluster", lock: "set-px-lua", tokenLock: "set-px-incr", ttl: usualTTL,
		endpoints: redisURLs,
		direct:    "clients get the addresses of nodes from the cluster",
	}
}

// Master is the name of the primary at the Sentinels of RedisSentinel.
const Master = "lockquake"

// RedisSentinel is a primary with two replicas, and three Sentinels. The endpoints are the Sentinels' URLs,
// redis://:PASSWORD@HOST:PORT?master_name=lockquake&sentinel_password=PASSWORD.
func RedisSentinel() Service {
	return Service{
		backend: "sentinel", lock: "set-px-lua", tokenLock: "set-px-incr", ttl: usualTTL, named: true,
		endpoints: sentinelURLs,
		direct:    "clients learn the address of the primary from the Sentinels",
	}
}

// Etcd is an etcd cluster of three members. Each endpoint is a URL, http://HOST:PORT.
func Etcd() Service {
	return Service{
		backend: "etcd", lock: "mutex", ttl: usualTTL,
		endpoints: func(a backends.Access) []string {
			return each(a.Addresses("client"), func(address string) string { return "http://" + address })
		},
	}
}

// ZooKeeper is an ensemble of three servers. Each endpoint is HOST:PORT, for zk.Connect.
func ZooKeeper() Service {
	return Service{
		backend: "zookeeper", lock: "sequential", ttl: usualTTL,
		endpoints: func(a backends.Access) []string {
			return a.Addresses("client")
		},
	}
}

// Postgres is one PostgreSQL server. The endpoint is a URL,
// postgres://USER:PASSWORD@HOST:PORT/postgres?sslmode=disable, of a superuser.
func Postgres() Service {
	return Service{
		backend: "postgres", lock: "lease", ttl: usualTTL,
		endpoints: func(a backends.Access) []string {
			login := a.LoginAt("client")
			return each(a.Addresses("client"), func(address string) string {
				u := url.URL{
					Scheme: "postgres", User: url.UserPassword(cmp.Or(login.User, "lockquake"),
						login.Password),
					Host: address, Path: "postgres", RawQuery: "sslmode=disable",
				}
				return u.String()
			})
		},
	}
}

// standIn returns lockquake's own lock whose promises the judge applies to this one.
func (s Service) standIn(token bool) string {
	if token {
		return cmp.Or(s.tokenLock, s.lock)
	}
	return s.lock
}

func redisURLs(a backends.Access) []string {
	login := a.LoginAt("client")
	return each(a.Addresses("client"), func(address string) string {
		u := url.URL{Scheme: "redis", User: url.UserPassword(login.User, login.Password), Host: address}
		return u.String()
	})
}

func sentinelURLs(a backends.Access) []string {
	login, watch := a.LoginAt("client"), a.LoginAt("sentinel")
	query := url.Values{"master_name": {Master}, "sentinel_password": {watch.Password}}
	return each(a.Addresses("sentinel"), func(address string) string {
		u := url.URL{
			Scheme: "redis", User: url.UserPassword(login.User, login.Password), Host: address,
			RawQuery: query.Encode(),
		}
		return u.String()
	})
}

func each(addresses []string, as func(string) string) []string {
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = as(a)
	}
	return out
}
