// Package etcd is etcd as a lock service: a cluster of members and the locks that run on it, one file each. The
// members are lockquake's own binary running the real server, or an older one from a package.
package etcd

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
)

// The names of the ports.
const (
	Port     = "client"
	peerPort = "peer"
)

// Backend returns an etcd cluster.
func Backend() listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name:    "etcd",
			Doc:     "An etcd cluster of an odd number of members (default three): lockquake's own binary, or Debian's 3.4.",
			Locks:   []backends.Lock{mutex(), txn(), v3lock(), v3lockBlind(), chubby()},
			Modules: []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/api/v3"},
			Servers: backends.Servers{Majority: backends.AmongThem, WholeSeconds: true},
		},
		Maker: topology.Maker{
			Profile: 1, Attachable: []string{Port}, New: newTopology,
			// etcdutl restores its data
			BuiltIn: []string{"go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdutl/v3"},
		},
	}
}

// The values of Params.Version.
const (
	builtIn    Version = "built-in" // the server in lockquake's own binary
	version3_4 Version = "3.4"      // etcd 3.4 from a package: Debian 12 has 3.4.23
)

// Version is text that may be written as a number.
type Version string

// UnmarshalText takes any text.
func (v *Version) UnmarshalText(b []byte) error {
	*v = Version(b)
	return nil
}

// Params is what a scenario may set besides the keys of all backends.
type Params struct {
	// Version chooses the server: the one in lockquake's own binary, or an etcd 3.4.
	Version   Version       `yaml:"version"`
	Heartbeat time.Duration `yaml:"heartbeat"` // between two heartbeats of the leader
	// NoFsync omits every fsync: a power cut then loses acknowledged writes.
	NoFsync bool `yaml:"unsafe_no_fsync"`
	// Bump is by how much a member raises its revisions before it serves data restored from a copy; 0: it serves them
	// as they are.
	Bump       int64 `yaml:"bump_revision"`
	LockParams `yaml:",inline"`
}

// LockParams is what a client process gets, and what the locks' recovery bounds rest on.
type LockParams struct {
	// Election is the minimum time that a follower waits for a heartbeat before it stands for election; the maximum
	// is twice that.
	Election time.Duration `yaml:"election" json:"election_ns"`
	// Timeout bounds each call to etcd. If a pause is shorter, the call waits; if it is longer, the call's outcome is
	// unknown.
	Timeout time.Duration `yaml:"timeout" json:"timeout_ns"`
	// LockDelay is how long lock chubby keeps the lock of a dead session; 0 is no delay. Only lock chubby has one.
	LockDelay time.Duration `yaml:"lock_delay" json:"lock_delay_ns"`
	// Pinned ties each client process to one member: the first to the first, and so on, beginning again after the
	// last member. If that member is down, the client has no other.
	Pinned bool `yaml:"pinned" json:"pinned,omitempty"`
	// SharedSession makes the users of a client process share one session, like an application that opens one at its
	// start. Mutex and v3lock are re-entrant within a session, so they no longer exclude such users from each other.
	SharedSession bool `yaml:"shared_session" json:"shared_session,omitempty"`
}

func defaults() Params {
	return Params{
		Version:    builtIn,
		Heartbeat:  100 * time.Millisecond,
		LockParams: LockParams{Election: time.Second, Timeout: 2 * time.Second, LockDelay: 5 * time.Second},
	}
}

// shortestTTL returns the minimum to which the server raises shorter leases: 1.5 election timeouts in whole ticks,
// rounded up to whole seconds (etcdserver/server.go, MinLeaseTTL).
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
	switch {
	case p.Version != builtIn && p.Version != version3_4:
		return fmt.Errorf("version is %q; it must be %s or %q", p.Version, builtIn, version3_4)
	case p.Bump < 0:
		return fmt.Errorf("bump_revision is %d; it must be at least 0", p.Bump)
	case p.Version == version3_4 && p.Bump > 0:
		return fmt.Errorf("etcd %s does not support bump_revision; omit it, or use version: %s", p.Version, builtIn)
	case p.Version == version3_4 && p.NoFsync:
		return fmt.Errorf("etcd %s does not support unsafe_no_fsync; omit it, or use version: %s", p.Version,
			builtIn)
	}
	if p.Election < 5*p.Heartbeat || p.Election > 50*time.Second {
		return fmt.Errorf("election is %s; it must be at least five heartbeats (%s) and at most 50s", p.Election,
			5*p.Heartbeat)
	}
	return nil
}

func (p Params) checkTTL(ttl time.Duration) error {
	if least := p.shortestTTL(); ttl < least {
		return fmt.Errorf("ttl is %s; with an election timeout of %s etcd keeps no lease shorter than %s: raise ttl or lower election",
			ttl, p.Election, least)
	}
	if ttl%time.Second != 0 {
		return fmt.Errorf("ttl is %s; etcd's leases are whole seconds, such as %s", ttl,
			ttl.Truncate(time.Second)+time.Second)
	}
	return nil
}

// checkDelay checks that the lock-delay is a possible lease.
func (p Params) checkDelay() error {
	switch least := p.shortestTTL(); {
	case p.LockDelay == 0:
	case p.LockDelay < least:
		return fmt.Errorf("lock_delay is %s; it is a lease, and with an election timeout of %s etcd keeps none shorter than %s: raise it, or write 0s for none",
			p.LockDelay, p.Election, least)
	case p.LockDelay%time.Second != 0:
		return fmt.Errorf("lock_delay is %s; etcd's leases are whole seconds, such as %s", p.LockDelay,
			p.LockDelay.Truncate(time.Second)+time.Second)
	}
	return nil
}

type setup struct {
	common topology.Common
	params Params
}

func newTopology(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := defaults()
	if err := decode(&p); err != nil {
		return nil, err
	}
	if c.Nodes == 0 {
		c.Nodes = 3
	}
	if c.Attached == nil && (c.Nodes < 0 || c.Nodes%2 == 0 || c.Nodes > 9) {
		return nil, fmt.Errorf("backend etcd: nodes is %d; it must be odd and at most 9", c.Nodes)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("backend etcd: %w", err)
	}
	if err := p.checkTTL(c.TTL); err != nil {
		return nil, fmt.Errorf("backend etcd: %w", err)
	}
	if c.Lock == "chubby" {
		if err := p.checkDelay(); err != nil {
			return nil, fmt.Errorf("backend etcd: %w", err)
		}
	}
	return setup{common: c, params: p}, nil
}

// Params returns what the clients get.
func (t setup) Params() any { return t.params.LockParams }

// WallClock reports true for etcd 3.4, whose leases depend on the wall clock: setting it back keeps a lease alive.
// Later versions use the monotonic clock.
func (t setup) WallClock() bool { return t.params.Version == version3_4 }

// lockParams decodes a client process's parameters.
func lockParams(raw json.RawMessage) (LockParams, error) {
	p := defaults().LockParams
	if err := backends.DecodeParams(raw, &p); err != nil {
		return p, fmt.Errorf("parameters of etcd: %w", err)
	}
	return p, nil
}
