package servers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

const (
	sentinelServers = 3 // a primary and its replicas
	sentinelWatches = 3 // Sentinels
	sentinelQuorum  = 2 // Sentinels that must agree that the primary is down
)

// Sentinel returns one primary, two replicas and three Sentinels that promote a replica if the primary fails, with
// these locks.
func Sentinel(list []backends.Lock) listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name: access.Sentinel,
			Doc: "One Redis primary with two replicas, and three Sentinels that promote a replica when the primary " +
				"fails. Replication is asynchronous, so a promoted replica may lack the newest grants.",
			Modules: []string{access.GoRedis},
			Locks:   list,
			Servers: backends.Servers{Standby: true, CountsConnections: true, Durable: durable, Forgets: true},
		},
		Maker: maker(7, with(list, newSentinel), access.Port, access.SentinelPort),
	}
}

// SentinelParams is what a scenario may set besides the keys of all backends.
type SentinelParams struct {
	// Persistence is what each data server writes to disk, as for one server; see Params.
	Persistence string `yaml:"persistence"`
	// DownAfter is how long a server must be silent before a Sentinel considers it down.
	DownAfter time.Duration `yaml:"down_after"`
	// FailoverTimeout bounds the phases of a failover; the next failover is refused for twice as long.
	FailoverTimeout   time.Duration `yaml:"failover_timeout"`
	WriteRule         `yaml:",inline"`
	access.LockParams `yaml:",inline"`
}

// SentinelDetection is how long a dead server goes unnoticed by default.
const SentinelDetection = 300 * time.Millisecond

func sentinelDefaults() SentinelParams {
	return SentinelParams{
		Persistence: "none", DownAfter: SentinelDetection, FailoverTimeout: time.Second,
		LockParams: access.LockDefaults(),
	}
}

func (p SentinelParams) check() error {
	if err := checkPersistence(p.Persistence); err != nil {
		return err
	}
	// Sentinels ping every 100 ms: with a shorter time they would consider every server down.
	if err := backends.CheckDuration("down_after", p.DownAfter, 200*time.Millisecond); err != nil {
		return err
	}
	if err := backends.CheckDuration("failover_timeout", p.FailoverTimeout, 100*time.Millisecond); err != nil {
		return err
	}
	if err := p.WriteRule.check(sentinelServers - 1); err != nil {
		return err
	}
	return p.LockParams.Check(sentinelServers - 1)
}

// sentinel is the topology.
type sentinel struct {
	locks   locks
	common  topology.Common
	params  SentinelParams
	servers int
	watches int
}

func newSentinel(list locks, c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := sentinelDefaults()
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(p.check(), list.checkWait(p.LockParams, c), checkPrefix(c), checkMaster(c)); err != nil {
		return nil, fmt.Errorf("backend %s: %w", access.Sentinel, err)
	}
	s := sentinel{locks: list, common: c, params: p, servers: sentinelServers, watches: sentinelWatches}
	if c.Attached != nil {
		s.servers, s.watches, s.params.Master = c.Attached.Ports[access.Port], c.Attached.Ports[access.SentinelPort],
			c.Attached.Master
		return s, nil
	}
	if c.Nodes != 0 && c.Nodes != sentinelServers+sentinelWatches {
		return nil, fmt.Errorf("backend %s: nodes is %d; it runs %d servers and %d Sentinels: omit it",
			access.Sentinel, c.Nodes, sentinelServers, sentinelWatches)
	}
	return s, nil
}

// Specs returns the data servers and the Sentinels. All data servers start as primaries. If a command line named a
// primary, a restarted node would follow it, wherever the primary had moved to, until failover_timeout has passed.
// Ready decides first who follows whom, and the Sentinels from then on.
func (s sentinel) Specs() []node.Spec {
	specs := make([]node.Spec, 0, s.servers+s.watches)
	for i := range s.servers {
		specs = append(specs, dataNode(serverName(i),
			func(p node.Place) []string { return s.server(p, p.Address(p.Self, access.Port)) }))
	}
	for i := range s.watches {
		specs = append(specs, node.Spec{
			Name: "sentinel-" + strconv.Itoa(i+1), Role: node.Server, Image: "redis", Restartable: true,
			Ports:   []node.Port{{Name: access.SentinelPort, Number: 26379}},
			Secret:  watchSecret,
			Command: func(p node.Place) []string { return watch(p, p.Address(p.Self, access.SentinelPort)) },
		})
	}
	return specs
}

// server returns the argv of a data server.
func (s sentinel) server(place node.Place, address string) []string {
	host, port := splitAddress(address)
	return slices.Concat(command(place, address, s.params.Persistence), s.params.WriteRule.options(), []string{
		"--replica-announce-ip", host, "--replica-announce-port", port,
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	})
}

// watch returns the argv of a Sentinel. A Sentinel needs a file that it can rewrite: the shell creates the first one
// and then execs the server. A restarted Sentinel finds its state in the file.
func watch(place node.Place, address string) []string {
	host, port := splitAddress(address)
	config := []string{
		"port " + port, "bind " + node.ListenOn(host), "protected-mode no", "daemonize no", "dir " + place.Dir,
		"sentinel announce-ip " + host, "sentinel announce-port " + port,
	}
	const script = `umask 077; [ -s "$0" ] || { printf '%s\n' "$1"; [ -z "$2" ] || cat "$2"; } >"$0"; exec redis-server "$0" --sentinel`
	return []string{"sh", "-c", script, place.Dir + "/sentinel.conf", strings.Join(config, "\n"), place.Secret}
}

// watchSecret is secret for a Sentinel: the password that it requires, and that it uses with the others.
func watchSecret(password string) string {
	return "requirepass " + password + "\nsentinel sentinel-pass " + password + "\n"
}

// Params returns what the clients get.
func (s sentinel) Params() any {
	p := s.params.LockParams
	p.Detection = s.params.DownAfter
	return p
}

// Service returns the handle on the running nodes.
func (s sentinel) Service(nodes []node.Handle) topology.Service {
	as := seen{
		port: access.Port, timeout: observeTimeout, keys: access.Keyspace(s.common.Prefix()),
		master: s.params.Master,
	}
	watches := as
	watches.port = access.SentinelPort
	known := sentinelNodes{servers: membersOf(nodes, as), sentinels: membersOf(nodes, watches)}
	return &sentinelService{sentinel: s, nodes: known, setup: sentinelSetup{nodes: known, params: s.params}}
}
