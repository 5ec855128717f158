// Package postgres is PostgreSQL as a lock service: one server, and the locks that run on it, one file each.
package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// Port is the name of the port that clients use.
const Port = "client"

// serverName is the name of the only server.
const serverName = "postgres-1"

// Backend returns one PostgreSQL server.
func Backend() listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    "postgres",
			Doc:     "One PostgreSQL server; acknowledged writes survive a crash, unless synchronous_commit is off.",
			Locks:   []backends.Lock{lease(), advisory(), row()},
			Modules: []string{"github.com/jackc/pgx/v5"},
			Servers: backends.Servers{CountsLate: true, CountsConnections: true, StartTLS: true, RefusesRenewals: true},
		},
		Maker: topology.Maker{Profile: 3, Attachable: []string{Port}, New: newTopology, Health: health},
	}
}

// Params is what a scenario may set besides the keys of all backends.
type Params struct {
	// SynchronousCommit is the server's setting of that name. With "off" the server answers before its log is on
	// disk, so a crash undoes its latest answers. With one server the other values are the same as "on".
	SynchronousCommit string `yaml:"synchronous_commit"`
	LockParams        `yaml:",inline"`
}

// LockParams is what a client process gets.
type LockParams struct {
	// Timeout bounds a statement that does not wait for a lock, and a connect. A user's first connect has at least 10
	// s.
	Timeout time.Duration `yaml:"timeout" json:"timeout_ns"`
	// TCPTimeout is how long the other side's kernel may be silent before either side drops a connection. It frees
	// the session locks of a client that was cut off. It does not free those of a stopped process, whose kernel still
	// answers.
	TCPTimeout time.Duration `yaml:"tcp_timeout" json:"tcp_timeout_ns"`
	// Retry is how the lease lock waits.
	Retry backends.Retry `yaml:"retry" json:"retry"`
	// Database contains the schema of a run on an external server.
	Database string `yaml:"-" json:"database,omitempty"`
	// SharedConnection makes the users of a client process share one connection, and thus one session. An advisory
	// lock is re-entrant within it, so it no longer excludes them from each other.
	SharedConnection bool `yaml:"shared_connection" json:"shared_connection,omitempty"`
}

func defaults() Params {
	return Params{
		SynchronousCommit: "on",
		LockParams: LockParams{
			Timeout:    time.Second,
			TCPTimeout: 10 * time.Second,
			Retry:      backends.Retry{Delay: 10 * time.Millisecond, Jitter: 0.5},
		},
	}
}

// commits lists the values of synchronous_commit.
var commits = []string{"on", "off", "local", "remote_write", "remote_apply"}

func (p Params) check() error {
	if !slices.Contains(commits, p.SynchronousCommit) {
		return fmt.Errorf("synchronous_commit is %q; it must be one of %s", p.SynchronousCommit,
			strings.Join(commits, ", "))
	}
	if err := backends.CheckDuration("timeout", p.Timeout, time.Millisecond); err != nil {
		return err
	}
	// The server counts the idle time before its first probe in whole seconds.
	if err := backends.CheckDuration("tcp_timeout", p.TCPTimeout, 2*time.Second); err != nil {
		return err
	}
	return p.Retry.Check()
}

// setup is the topology of one server.
type setup struct {
	common topology.Common
	params Params
}

func newTopology(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := defaults()
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("backend postgres: %w", err)
	}
	if err := checkPrefix(c); err != nil {
		return nil, fmt.Errorf("backend postgres: %w", err)
	}
	if p.SharedConnection && c.Lock != "" && c.Lock != advisoryName {
		return nil, fmt.Errorf("backend postgres: shared_connection does not apply to lock %s, only to %s", c.Lock,
			advisoryName)
	}
	if c.Attached != nil {
		p.Database = c.Attached.Database
	}
	if c.Nodes > 1 {
		return nil, fmt.Errorf("backend postgres: nodes is %d; it runs one server", c.Nodes)
	}
	return setup{common: c, params: p}, nil
}

// Specs returns the one server.
func (t setup) Specs() []node.Spec {
	return []node.Spec{{
		Name:        serverName,
		Role:        node.Server,
		Ports:       []node.Port{{Name: Port, Number: 5432}},
		Image:       "postgres",
		Restartable: true,
		StopSignal:  "INT", // after SIGTERM it would wait for every client to leave
		Secret:      secret,
		Command: func(p node.Place) []string {
			return t.params.command(p, p.Address(serverName, Port))
		},
	}}
}

// Params returns what the clients get.
func (t setup) Params() any { return t.params.LockParams }

// Service returns the handle on the running server. If the lock's grants last as long as a session, it also lists the
// sessions.
func (t setup) Service(nodes []node.Handle) topology.Service {
	s := newService(t, nodes)
	if t.common.Lock == advisoryName || t.common.Lock == rowName {
		return &sessions{service: s, watch: newMember(nodes, t.common, t.params.LockParams)}
	}
	return s
}

// lockParams decodes a client process's parameters.
func lockParams(raw json.RawMessage) (LockParams, error) {
	p := defaults().LockParams
	if err := backends.DecodeParams(raw, &p); err != nil {
		return p, fmt.Errorf("parameters of postgres: %w", err)
	}
	return p, nil
}

// health returns a command that checks whether the server accepts connections.
func health(port int) []string {
	return []string{"CMD-SHELL", fmt.Sprintf("pg_isready -h 127.0.0.1 -p %d", port)}
}
