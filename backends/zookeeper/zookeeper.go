// Package zookeeper is ZooKeeper as a lock service: an ensemble of servers, and the locks that run on it, one file
// each.
package zookeeper

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

// The names of the ports.
const (
	Port         = "client"
	peerPort     = "peer"
	electionPort = "election"
)

// Backend returns a ZooKeeper ensemble.
func Backend() listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    "zookeeper",
			Doc:     "A ZooKeeper ensemble of three servers (or five), one JVM each.",
			Locks:   []backends.Lock{sequential(), herd(), single(), zkLock()},
			Modules: []string{"github.com/go-zookeeper/zk"},
			Servers: backends.Servers{Majority: backends.AmongThem, CapsTTL: true},
		},
		Maker: topology.Maker{Profile: 8, Attachable: []string{Port}, New: newTopology, Health: health},
	}
}

// Params is what a scenario may set besides the keys of all backends.
type Params struct {
	// TickTime is ZooKeeper's unit of time: there are two heartbeats per tick, and sessions expire in whole ticks.
	TickTime time.Duration `yaml:"tick_time"`
	// SyncLimit is how many ticks a follower may be out of touch with the leader before either disconnects.
	SyncLimit int `yaml:"sync_limit"`
	// MinSession and MaxSession bound session timeouts; a TTL outside of them is rejected. 0: two ticks.
	MinSession time.Duration `yaml:"min_session_timeout"`
	MaxSession time.Duration `yaml:"max_session_timeout"`
	// CnxTimeout bounds a connect between servers during an election. It can be the longest part of an election.
	CnxTimeout time.Duration `yaml:"cnx_timeout"`
	// NoFsync omits every fsync: a power cut then loses acknowledged writes.
	NoFsync    bool `yaml:"unsafe_no_fsync"`
	LockParams `yaml:",inline"`
}

// LockParams is what a client process gets.
type LockParams struct {
	// Timeout bounds each request. If a pause is shorter, the request waits; if it is longer, the request's outcome
	// is unknown.
	Timeout time.Duration `yaml:"timeout" json:"timeout_ns"`
	// Lag is subtracted from a grant's validity: how long a server may go on answering pings without its leader
	// knowing of them. It follows from TickTime and SyncLimit.
	Lag time.Duration `yaml:"-" json:"lag_ns"`
	// SharedSession makes the users of a client process share one session. Each still has its own nodes, so the locks
	// exclude them from each other. But the end of the session ends the grants of all.
	SharedSession bool `yaml:"shared_session" json:"shared_session,omitempty"`
}

func defaults() Params {
	return Params{
		TickTime:   200 * time.Millisecond,
		SyncLimit:  2,
		MaxSession: 40 * time.Second,
		CnxTimeout: 500 * time.Millisecond,
		LockParams: LockParams{Timeout: 2 * time.Second},
	}
}

// derived sets what follows from other keys.
func (p Params) derived() Params {
	if p.MinSession == 0 {
		p.MinSession = 2 * p.TickTime
	}
	p.Lag = time.Duration(p.SyncLimit+1) * p.TickTime
	return p
}

func (p Params) check() error {
	for _, d := range []struct {
		key   string
		value time.Duration
		least time.Duration
	}{
		{"tick_time", p.TickTime, 10 * time.Millisecond},
		{"min_session_timeout", p.MinSession, p.TickTime},
		{"max_session_timeout", p.MaxSession, p.MinSession},
		{"cnx_timeout", p.CnxTimeout, time.Millisecond},
		{"timeout", p.Timeout, time.Millisecond},
	} {
		if err := backends.CheckDuration(d.key, d.value, d.least); err != nil {
			return err
		}
	}
	if p.SyncLimit < 1 || p.SyncLimit > 100 {
		return fmt.Errorf("sync_limit is %d; it must be from 1 to 100 ticks", p.SyncLimit)
	}
	return nil
}

// checkTTL rejects sessions that the servers would give another length, and those whose validity would run out
// between two pings.
func (p Params) checkTTL(ttl time.Duration) error {
	switch {
	case ttl < p.MinSession:
		return fmt.Errorf("ttl is %s; the servers raise sessions to min_session_timeout, %s", ttl, p.MinSession)
	case ttl > p.MaxSession:
		return fmt.Errorf("ttl is %s; the servers cut sessions to max_session_timeout, %s: raise it, or lower ttl", ttl,
			p.MaxSession)
	case ttl%time.Millisecond != 0:
		return fmt.Errorf("ttl is %s; ZooKeeper's sessions are whole milliseconds", ttl)
	case ttl-p.Lag-backends.Drift(ttl) <= ttl/3:
		// The library pings at every third of the session.
		return fmt.Errorf("ttl is %s; a server may answer pings for %s (sync_limit + 1 ticks) without the leader, so "+
			"holders would almost never be entitled: raise ttl above %s, or lower tick_time or sync_limit", ttl, p.Lag,
			leastTTL(p.Lag))
	}
	return nil
}

// leastTTL returns the length at which a session's validity just reaches the next ping, rounded up to 100 ms.
func leastTTL(lag time.Duration) time.Duration {
	exact := (lag + backends.Drift(0)) * 300 / 197 // ttl - ttl/100 - ttl/3 = lag + the rest of the drift
	return exact.Truncate(100*time.Millisecond) + 100*time.Millisecond
}

type setup struct {
	common topology.Common
	params Params
}

func newTopology(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := defaults()
	if c.Attached != nil {
		p.TickTime, p.SyncLimit = 0, 0
	}
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := checkGuest(c, p); err != nil {
		return nil, fmt.Errorf("backend zookeeper: %w", err)
	}
	p = p.derived()
	if c.Nodes == 0 {
		c.Nodes = 3
	}
	if c.Attached == nil && c.Nodes != 3 && c.Nodes != 5 {
		return nil, fmt.Errorf("backend zookeeper: nodes is %d; it must be 3 or 5", c.Nodes)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("backend zookeeper: %w", err)
	}
	if err := p.checkTTL(c.TTL); err != nil {
		return nil, fmt.Errorf("backend zookeeper: %w", err)
	}
	if p.SharedSession && c.Lock != "" && !slices.Contains(queues, c.Lock) {
		return nil, fmt.Errorf("backend zookeeper: shared_session does not apply to lock %s, only to %s", c.Lock,
			strings.Join(queues, " and "))
	}
	return setup{common: c, params: p}, nil
}

// Specs returns the servers.
func (t setup) Specs() []node.Spec {
	specs := make([]node.Spec, 0, t.common.Nodes)
	for i := range t.common.Nodes {
		specs = append(specs, node.Spec{
			Name: name(i),
			Role: node.Server,
			Ports: []node.Port{
				{Name: Port, Number: 2181}, {Name: peerPort, Number: 2888}, {Name: electionPort, Number: 3888},
			},
			Image:       "zookeeper",
			Restartable: true,
			Command: func(p node.Place) []string {
				return t.params.command(seat{number: i + 1, members: t.common.Nodes, dir: p.Dir, address: p.Address})
			},
		})
	}
	return specs
}

// Params returns what the clients get.
func (t setup) Params() any { return t.params.LockParams }

// lockParams decodes a client process's parameters.
func lockParams(raw json.RawMessage) (LockParams, error) {
	p := defaults().derived().LockParams
	if err := backends.DecodeParams(raw, &p); err != nil {
		return p, fmt.Errorf("parameters of zookeeper: %w", err)
	}
	return p, nil
}

// health returns a command that asks the node for its mode, which only a serving node answers.
func health(port int) []string {
	return []string{"CMD", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; echo srvr >&3; grep -q Mode <&3",
		port)}
}
