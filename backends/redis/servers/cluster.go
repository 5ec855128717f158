package servers

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

const (
	clusterPrimaries = 3
	clusterServers   = 2 * clusterPrimaries // each primary has one replica
)

// busPort is the name of the port on which the servers of a cluster talk to each other.
const busPort = "bus"

// Cluster returns Redis Cluster with these locks: three primaries that share the keys, each with a replica.
func Cluster(list []backends.Lock) listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name: access.Cluster,
			Doc: "Redis Cluster: three primaries that share the keys, with one replica each. Replication is " +
				"asynchronous, so a promoted replica may lack the newest grants.",
			Modules: []string{access.GoRedis},
			Locks:   list,
			Servers: backends.Servers{Standby: true, CountsConnections: true, Durable: durable, Forgets: true},
		},
		Maker: maker(5, with(list, newCluster), access.Port),
	}
}

// ClusterParams is what a scenario may set besides the keys of all backends.
type ClusterParams struct {
	// Persistence is what each server writes to disk, as for one server; see Params.
	Persistence string `yaml:"persistence"`
	// NodeTimeout is how long a server must be silent before others consider it failed.
	NodeTimeout       time.Duration `yaml:"node_timeout"`
	WriteRule         `yaml:",inline"`
	access.LockParams `yaml:",inline"`
}

// ClusterDetection is how long a dead server goes unnoticed by default.
const ClusterDetection = 500 * time.Millisecond

func clusterDefaults() ClusterParams {
	return ClusterParams{Persistence: "none", NodeTimeout: ClusterDetection, LockParams: access.LockDefaults()}
}

func (p ClusterParams) check() error {
	if err := checkPersistence(p.Persistence); err != nil {
		return err
	}
	// The servers ping each other from a timer of 100 ms, at half the node timeout.
	if err := backends.CheckDuration("node_timeout", p.NodeTimeout, 200*time.Millisecond); err != nil {
		return err
	}
	if err := p.WriteRule.check(1); err != nil {
		return err
	}
	return p.LockParams.Check(1)
}

// sharded is the topology.
type sharded struct {
	locks  locks
	common topology.Common
	params ClusterParams
}

func newCluster(list locks, c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := clusterDefaults()
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(p.check(), list.checkWait(p.LockParams, c), checkPrefix(c)); err != nil {
		return nil, fmt.Errorf("backend %s: %w", access.Cluster, err)
	}
	if c.Attached == nil && c.Nodes != 0 && c.Nodes != clusterServers {
		return nil, fmt.Errorf("backend %s: nodes is %d; it runs %d primaries with a replica each: omit it",
			access.Cluster, c.Nodes, clusterPrimaries)
	}
	return sharded{locks: list, common: c, params: p}, nil
}

// Specs returns the servers. The first three begin as primaries, the fourth follows the first, and so on; Ready
// introduces them to each other. For an external cluster they are the servers that the user named.
func (s sharded) Specs() []node.Spec {
	servers := clusterServers
	if s.common.Attached != nil {
		servers = s.common.Attached.Ports[access.Port]
	}
	specs := make([]node.Spec, 0, servers)
	for i := range servers {
		spec := dataNode(serverName(i), func(p node.Place) []string {
			return s.server(p, p.Address(p.Self, access.Port), p.Address(p.Self, busPort))
		})
		spec.Ports = append(spec.Ports, node.Port{Name: busPort, Number: 16379})
		specs = append(specs, spec)
	}
	return specs
}

// replicaValidity is how long a replica without its primary may still be elected: Redis' own defaults, ten times 15
// s.
const replicaValidity = 150 * time.Second

// server returns the argv of a server that clients reach at address, and other servers at bus.
func (s sharded) server(place node.Place, address, bus string) []string {
	host, port := splitAddress(address)
	_, busNumber := splitAddress(bus)
	return slices.Concat(command(place, address, s.params.Persistence), s.params.WriteRule.options(), []string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", strconv.FormatInt(s.params.NodeTimeout.Milliseconds(), 10),
		// The default factor is ten. At 500 ms a replica that has lost one election is then too old for the next, and
		// its slots would never be served again.
		"--cluster-replica-validity-factor", strconv.FormatInt(max(10, int64(replicaValidity/s.params.NodeTimeout)),
			10),
		"--cluster-port", busNumber, "--cluster-announce-ip", host, "--cluster-announce-port", port,
		"--cluster-announce-bus-port", busNumber,
		// A replica that does not know its primary's offset is left out of CLUSTER SLOTS: each ping brings it.
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	})
}

// Params returns what the clients get.
func (s sharded) Params() any {
	p := s.params.LockParams
	p.Detection = s.params.NodeTimeout
	return p
}

// Service returns the handle on the running nodes.
func (s sharded) Service(nodes []node.Handle) topology.Service {
	servers := membersOf(nodes, seen{
		port: access.Port, timeout: observeTimeout,
		keys: access.Keyspace(s.common.Prefix()),
	})
	guest, setup := clusterGuest{endpoints: servers, common: s.common},
		clusterSetup{servers: servers, buses: map[string]string{}}
	for _, n := range nodes {
		guest.login, setup.buses[n.Name()] = n.Login(), n.Address(busPort)
	}
	return &clusterService{sharded: s, servers: servers, guest: guest, setup: setup}
}
