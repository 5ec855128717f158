// Package etcd is etcd as a lock service: a cluster of members, which are lockquake's own binary running the real
// server, and the locks that run on it, one file each.
package etcd

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/cluster"
)

// The names of the ports.
const (
	Port     = "client"
	peerPort = "peer"
)

// Backend is an etcd cluster.
func Backend() backends.Backend {
	return backends.Backend{
		Name:  "etcd",
		Doc:   "An etcd cluster of an odd number of members (three unless asked for more), each lockquake's own binary.",
		Locks: []backends.Lock{mutex()},
		New:   newTopology,
	}
}

// Params is what a scenario may set beside the keys that all backends have.
type Params struct {
	Heartbeat time.Duration `yaml:"heartbeat"` // between two heartbeats of the leader
	Election  time.Duration `yaml:"election"`  // a follower without heartbeat for that long stands for election
	// NoFsync leaves out every fsync: a power cut then loses acknowledged writes.
	NoFsync    bool `yaml:"unsafe_no_fsync"`
	LockParams `yaml:",inline"`
}

// LockParams is what a client process is told.
type LockParams struct {
	// Timeout bounds each call to etcd. Where a pause is shorter than it, the call waits; where it is longer, the call's
	// outcome is unknown.
	Timeout time.Duration `yaml:"timeout" json:"timeout_ns"`
}

func defaults() Params {
	return Params{
		Heartbeat:  100 * time.Millisecond,
		Election:   time.Second,
		LockParams: LockParams{Timeout: 2 * time.Second},
	}
}

// shortestTTL is what the server raises shorter leases to: 1.5 election timeouts in whole ticks, rounded up to whole
// seconds (etcdserver/server.go, MinLeaseTTL).
func (p Params) shortestTTL() time.Duration {
	ticks := int64(p.Election / p.Heartbeat)
	least := time.Duration(3*ticks/2) * p.Heartbeat
	return time.Duration(math.Ceil(least.Seconds())) * time.Second
}

func (p Params) check() error {
	for _, d := range []struct {
		key   string
		value time.Duration
	}{{"heartbeat", p.Heartbeat}, {"election", p.Election}, {"timeout", p.Timeout}} {
		if err := backends.CheckDuration(d.key, d.value, time.Millisecond); err != nil {
			return err
		}
	}
	if p.Election < 5*p.Heartbeat || p.Election > 50*time.Second {
		return fmt.Errorf("election is %s; it must be at least five heartbeats (%s) and at most 50s", p.Election, 5*p.Heartbeat)
	}
	return nil
}

func (p Params) checkTTL(ttl time.Duration) error {
	if least := p.shortestTTL(); ttl < least {
		return fmt.Errorf("ttl is %s; with an election timeout of %s etcd keeps no lease shorter than %s: raise ttl or lower election",
			ttl, p.Election, least)
	}
	if ttl%time.Second != 0 {
		return fmt.Errorf("ttl is %s; etcd's leases are whole seconds, such as %s", ttl, ttl.Truncate(time.Second)+time.Second)
	}
	return nil
}

type topology struct {
	common backends.Common
	params Params
}

func newTopology(c backends.Common, decode func(into any) error) (backends.Topology, error) {
	p := defaults()
	if err := decode(&p); err != nil {
		return nil, err
	}
	if c.Nodes == 0 {
		c.Nodes = 3
	}
	if c.Nodes < 0 || c.Nodes%2 == 0 || c.Nodes > 9 {
		return nil, fmt.Errorf("backend etcd: nodes is %d; it must be odd and at most 9", c.Nodes)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("backend etcd: %w", err)
	}
	if err := p.checkTTL(c.TTL); err != nil {
		return nil, fmt.Errorf("backend etcd: %w", err)
	}
	return topology{common: c, params: p}, nil
}

func name(i int) string { return "etcd-" + strconv.Itoa(i+1) }

// Specs describes the members.
func (t topology) Specs() []cluster.Spec {
	specs := make([]cluster.Spec, 0, t.common.Nodes)
	for i := range t.common.Nodes {
		specs = append(specs, cluster.Spec{
			Name:        name(i),
			Role:        cluster.Server,
			Ports:       []cluster.Port{{Name: Port, Number: 2379}, {Name: peerPort, Number: 2380}},
			Image:       "lockquake",
			Restartable: true,
			Command: func(p cluster.Place) []string {
				return t.params.command(seat{name: name(i), dir: p.Dir, members: t.common.Nodes, address: p.Address})
			},
		})
	}
	return specs
}

// seat is a member's place in the cluster.
type seat struct {
	name    string
	dir     string
	members int
	address func(node, port string) string
}

// command is the argv of one member. It listens on all addresses and tells the others the one that the run gave it.
func (p Params) command(s seat) []string {
	url := func(node, port string) string { return "http://" + s.address(node, port) }
	all := make([]string, 0, s.members)
	for i := range s.members {
		all = append(all, name(i)+"="+url(name(i), peerPort))
	}
	argv := []string{
		cluster.SelfProgram, "node", "etcd",
		"--name", s.name,
		"--data-dir", s.dir + "/data",
		"--listen-client-urls", anywhere(s.address(s.name, Port)),
		"--advertise-client-urls", url(s.name, Port),
		"--listen-peer-urls", anywhere(s.address(s.name, peerPort)),
		"--initial-advertise-peer-urls", url(s.name, peerPort),
		"--initial-cluster", strings.Join(all, ","),
		"--initial-cluster-state", "new",
		"--initial-cluster-token", "lockquake",
		"--heartbeat-interval", strconv.FormatInt(p.Heartbeat.Milliseconds(), 10),
		"--election-timeout", strconv.FormatInt(p.Election.Milliseconds(), 10),
		"--log-level", "warn",
		"--log-outputs", "stderr",
	}
	if p.NoFsync {
		argv = append(argv, "--unsafe-no-fsync")
	}
	return argv
}

// anywhere is the URL that listens on the port of address, on all interfaces.
func anywhere(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "http://" + address // etcd's own message names it
	}
	return "http://0.0.0.0:" + port
}

// Params is what the clients get.
func (t topology) Params() any { return t.params.LockParams }

// lockParams decodes what a client process was told.
func lockParams(raw json.RawMessage) (LockParams, error) {
	p := defaults().LockParams
	if len(raw) == 0 {
		return p, nil
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, fmt.Errorf("parameters of etcd: %w", err)
	}
	return p, nil
}
