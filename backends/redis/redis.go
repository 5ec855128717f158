// Package redis is Redis as a lock service: its topologies and the locks that run on them, one file each.
package redis

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/cluster"
)

// Port is the name of the port that clients use.
const Port = "client"

// Backend is one Redis server.
func Backend() backends.Backend {
	return backends.Backend{
		Name:  "redis",
		Doc:   "One Redis server; without persistence unless asked for, so that a restart forgets every lock.",
		Locks: []backends.Lock{setPxLua()},
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

// LockParams is what a client process is told.
type LockParams struct {
	// Timeout bounds one command on the wire, and one connect.
	Timeout time.Duration  `yaml:"timeout" json:"timeout_ns"`
	Retry   backends.Retry `yaml:"retry" json:"retry"`
}

func defaults() Params {
	return Params{
		Persistence: "none",
		LockParams: LockParams{
			Timeout: time.Second,
			Retry:   backends.Retry{Delay: 10 * time.Millisecond, Jitter: 0.5},
		},
	}
}

// persistence is the server's command line for each policy.
var persistence = map[string][]string{
	"none":     {"--save", "", "--appendonly", "no"},
	"snapshot": {"--save", "1 1", "--appendonly", "no"},
	"everysec": {"--save", "", "--appendonly", "yes", "--appendfsync", "everysec"},
	"always":   {"--save", "", "--appendonly", "yes", "--appendfsync", "always"},
}

func (p Params) check() error {
	if _, ok := persistence[p.Persistence]; !ok {
		return fmt.Errorf("persistence is %q; it must be none, snapshot, everysec or always", p.Persistence)
	}
	if err := backends.CheckDuration("timeout", p.Timeout, time.Millisecond); err != nil {
		return err
	}
	return p.Retry.Check()
}

// single is the topology of one server.
type single struct {
	common backends.Common
	params Params
}

func newSingle(c backends.Common, decode func(into any) error) (backends.Topology, error) {
	p := defaults()
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
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

// command is the argv of a server that is reached at address.
func command(address, dir, policy string) []string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		port = "6379" // the server's own default
	}
	argv := []string{
		"redis-server", "--port", port, "--bind", "0.0.0.0", "--protected-mode", "no", "--daemonize", "no", "--dir", dir,
	}
	return append(argv, persistence[policy]...)
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

// lockParams decodes what a client process was told.
func lockParams(raw json.RawMessage) (LockParams, error) {
	p := defaults().LockParams
	if len(raw) == 0 {
		return p, nil
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("parameters of redis: %w", err)
	}
	return p, nil
}
