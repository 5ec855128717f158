package redis

import (
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
		Name:  nameSingle,
		Doc:   "One Redis server; without persistence unless asked for, so that a restart forgets every lock.",
		Locks: locks(),
		New:   newSingle,
	}
}

// Params is what a scenario may set beside the keys that all backends have.
type Params struct {
	// Persistence is "none", "snapshot" (an RDB file within a second of a change), "everysec" or "always" (an append-only file with that
	// fsync policy).
	Persistence string `yaml:"persistence" json:"persistence"`
	LockParams  `yaml:",inline"`
}

// single is the topology of one server.
type single struct {
	common backends.Common
	params Params
}

func newSingle(c backends.Common, decode func(into any) error) (backends.Topology, error) {
	p := Params{Persistence: "none", LockParams: lockDefaults()}
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(checkPersistence(p.Persistence), p.check(0)); err != nil {
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
		Name:        "redis-1",
		Role:        cluster.Server,
		Ports:       []cluster.Port{{Name: Port, Number: 6379}},
		Image:       "redis",
		Restartable: true,
		Command: func(p cluster.Place) []string {
			return command(p.Address("redis-1", Port), p.Dir, s.params.Persistence)
		},
	}}
}

// Params is what the clients get.
func (s single) Params() any { return s.params.LockParams }

// Service returns the handle on the running server.
func (s single) Service(nodes []*cluster.Node) backends.Service {
	members := make([]member, 0, len(nodes))
	for _, n := range nodes {
		members = append(members, newMember(n.Name(), n.Dial, s.params.Timeout))
	}
	return &service{params: s.params, ttl: s.common.TTL, members: members}
}
