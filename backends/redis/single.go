package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// nameSingle is the backend of one server.
const nameSingle = "redis"

// Single is one Redis server.
func Single() listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    nameSingle,
			Doc:     "One Redis server; without persistence unless asked for, so that a restart forgets every lock.",
			Locks:   append(locks(), wasteful(), stubborn()),
			Servers: backends.Servers{CountsConnections: true},
		},
		Maker: topology.Maker{Attachable: []string{Port}, Syncing: syncing, OneThread: true, New: newSingle, Health: health},
	}
}

// Params is what a scenario may set beside the keys that all backends have.
type Params struct {
	// Persistence is "none", "snapshot" (an RDB file within a second of a change), "save-points" (Redis' own: after an hour, or sooner after
	// many changes; and when it is stopped in order), "everysec" or "always" (an append-only file with that fsync policy).
	Persistence string `yaml:"persistence" json:"persistence"`
	// Restart is "immediate", or "delayed": a server that ended comes back only when every key that it may have forgotten is over.
	Restart    string `yaml:"restart" json:"restart"`
	LockParams `yaml:",inline"`
}

// single is the topology of one server.
type single struct {
	common topology.Common
	params Params
}

func newSingle(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := Params{Persistence: "none", Restart: restartImmediate, LockParams: lockDefaults()}
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(checkPersistence(p.Persistence), checkRestart(p.Restart), p.check(0), checkPrefix(c)); err != nil {
		return nil, fmt.Errorf("backend redis: %w", err)
	}
	if c.Nodes > 1 {
		return nil, fmt.Errorf("backend redis: nodes is %d; it runs one server", c.Nodes)
	}
	return single{common: c, params: p}, nil
}

// Specs describes the one server.
func (s single) Specs() []node.Spec {
	return []node.Spec{independent("redis-1", s.params.Persistence, restartDelay(s.params.Restart, s.common.TTL))}
}

// independent describes a server that knows of no other.
func independent(name, persistence string, delay time.Duration) node.Spec {
	spec := dataNode(name, func(p node.Place) []string { return command(p, p.Address(name, Port), persistence) })
	spec.SyncThreads, spec.RestartDelay = syncThreads(persistence), delay
	return spec
}

// dataNode describes a server that keeps keys.
func dataNode(name string, argv func(node.Place) []string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Server, Image: "redis", Restartable: true, Ports: []node.Port{{Name: Port, Number: 6379}}, Secret: secret, Command: argv,
	}
}

// Params is what the clients get.
func (s single) Params() any { return s.params.LockParams }

// Service returns the handle on the running server.
func (s single) Service(nodes []node.Handle) topology.Service {
	servers := membersOf(nodes, seen{port: Port, timeout: s.params.Timeout, keys: keyspace(s.common.Prefix())})
	return &service{attachedServers{members: servers, common: s.common}, s.params}
}

// service answers for the running server.
type service struct {
	attachedServers
	params Params
}

// Describe returns the server's version and what decides about results.
func (s *service) Describe(ctx context.Context) map[string]string {
	out := s.params.LockParams.describe(s.common)
	out["redis.topology"] = "single"
	out["redis.persistence"] = s.params.Persistence
	out["redis.restart"] = s.params.Restart
	out["redis.version"] = s.members.version(ctx)
	s.common.Drop(out, "redis.persistence", "redis.restart")
	return out
}

// What `restart` may say.
const (
	restartImmediate = "immediate"
	restartDelayed   = "delayed"
)

func checkRestart(policy string) error {
	if policy != restartImmediate && policy != restartDelayed {
		return fmt.Errorf("restart is %q; it must be %s or %s", policy, restartImmediate, restartDelayed)
	}
	return nil
}

// restartMargin is how much longer than a TTL a delayed server stays away: a command may have been on its way for a while
// when the server ended.
const restartMargin = 500 * time.Millisecond

// restartDelay is how long a server that ended waits before it starts again: with "delayed" longer than any key that it may
// have forgotten could have lived (redis.io, "Distributed Locks with Redis", "Performance, crash recovery and fsync").
func restartDelay(policy string, ttl time.Duration) time.Duration {
	if policy == restartDelayed {
		return ttl + restartMargin
	}
	return 0
}
