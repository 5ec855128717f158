package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/cluster"
)

// nameSingle is the backend of one server.
const nameSingle = "redis"

// Single is one Redis server.
func Single() backends.Backend {
	return backends.Backend{
		Name:    nameSingle,
		Doc:     "One Redis server; without persistence unless asked for, so that a restart forgets every lock.",
		Locks:   locks(),
		Syncing: syncing,
		New:     newSingle,
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
	common backends.Common
	params Params
}

func newSingle(c backends.Common, decode func(into any) error) (backends.Topology, error) {
	p := Params{Persistence: "none", Restart: restartImmediate, LockParams: lockDefaults()}
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(checkPersistence(p.Persistence), checkRestart(p.Restart), p.check(0)); err != nil {
		return nil, fmt.Errorf("backend redis: %w", err)
	}
	if c.Nodes > 1 {
		return nil, fmt.Errorf("backend redis: nodes is %d; it runs one server", c.Nodes)
	}
	return single{common: c, params: p}, nil
}

// Specs describes the one server.
func (s single) Specs() []cluster.Spec {
	return []cluster.Spec{{
		Name:         "redis-1",
		Role:         cluster.Server,
		Ports:        []cluster.Port{{Name: Port, Number: 6379}},
		Image:        "redis",
		SyncThreads:  syncThreads(s.params.Persistence),
		Restartable:  true,
		RestartDelay: restartDelay(s.params.Restart, s.common.TTL),
		Command: func(p cluster.Place) []string {
			return command(p.Address("redis-1", Port), p.Dir, s.params.Persistence)
		},
	}}
}

// Params is what the clients get.
func (s single) Params() any { return s.params.LockParams }

// Service returns the handle on the running server.
func (s single) Service(nodes []*cluster.Node) backends.Service {
	return &service{params: s.params, common: s.common, members: membersOf(nodes, Port, s.params.Timeout)}
}

// service answers for the running server.
type service struct {
	params  Params
	common  backends.Common
	members members
}

// Facts lists what can be asked.
func (s *service) Facts() map[string]string { return serverFacts() }

// Ask asks the server for one fact.
func (s *service) Ask(ctx context.Context, node, fact string) (string, error) {
	m, err := s.members.find(node)
	if err != nil {
		return "", err
	}
	return m.ask(ctx, fact)
}

// Ready writes a value to the server and reads it back.
func (s *service) Ready(ctx context.Context) error {
	for _, m := range s.members {
		if err := m.write(ctx, readyKey); err != nil {
			return err
		}
	}
	return nil
}

// Describe returns the server's version and what decides about results.
func (s *service) Describe(ctx context.Context) map[string]string {
	out := s.params.LockParams.describe(s.common)
	out["redis.topology"] = "single"
	out["redis.persistence"] = s.params.Persistence
	out["redis.restart"] = s.params.Restart
	out["redis.version"] = s.members.version(ctx)
	return out
}

// Close frees the connections.
func (s *service) Close() error { return s.members.close() }
