package servers

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// Single returns one Redis server with these locks.
func Single(list []backends.Lock) listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    access.Single,
			Doc:     "One Redis server; by default without persistence, so a restart loses every lock.",
			Modules: []string{access.GoRedis},
			Locks:   list,
			Servers: backends.Servers{
				CountsConnections: true, Durable: durable, Forgets: true, Terse: true, RefusesRenewals: true,
			},
		},
		Maker: maker(4, with(list, newSingle), access.Port),
	}
}

// Params is what a scenario may set besides the keys of all backends.
type Params struct {
	// Persistence is one of five policies. "none" writes nothing. "snapshot" writes an RDB file within a second of a
	// change. "save-points" are Redis' own: after an hour, or sooner after many changes, and at a graceful stop.
	// "everysec" and "always" write an append-only file with that fsync policy.
	Persistence string `yaml:"persistence" json:"persistence"`
	// Restart is "immediate" or "delayed". A delayed server comes back only when every key that it may have forgotten
	// has expired.
	Restart           string `yaml:"restart" json:"restart"`
	access.LockParams `yaml:",inline"`
}

// single is the topology of one server.
type single struct {
	locks  locks
	common topology.Common
	params Params
}

func newSingle(list locks, c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := Params{Persistence: "none", Restart: restartImmediate, LockParams: access.LockDefaults()}
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(checkPersistence(p.Persistence), checkRestart(p.Restart), p.Check(0),
		checkPrefix(c)); err != nil {
		return nil, fmt.Errorf("backend redis: %w", err)
	}
	if c.Nodes > 1 {
		return nil, fmt.Errorf("backend redis: nodes is %d; it runs one server", c.Nodes)
	}
	return single{locks: list, common: c, params: p}, nil
}

// Specs returns the one server.
func (s single) Specs() []node.Spec {
	return []node.Spec{independent("redis-1", s.params.Persistence, restartDelay(s.params.Restart, s.common.TTL))}
}

// Params returns what the clients get.
func (s single) Params() any { return s.params.LockParams }

// Service returns the handle on the running server.
func (s single) Service(nodes []node.Handle) topology.Service {
	servers := membersOf(nodes, seen{
		port: access.Port, timeout: s.params.Timeout,
		keys: access.Keyspace(s.common.Prefix()),
	})
	return &service{independents(servers, s.common), s}
}

// service answers for the running server.
type service struct {
	independentServers
	single single
}

// Describe returns the server's version and the settings that affect results.
func (s *service) Describe(ctx context.Context) map[string]string {
	p := s.single.params
	out := s.single.locks.describe(p.LockParams, s.single.common)
	out["redis.topology"] = "single"
	out["redis.persistence"] = p.Persistence
	out["redis.restart"] = p.Restart
	out["redis.version"] = s.members.version(ctx)
	s.single.common.Drop(out, "redis.persistence", "redis.restart")
	return out
}
