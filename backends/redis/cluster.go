package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

const (
	clusterPrimaries = 3
	clusterServers   = 2 * clusterPrimaries // each primary has one replica
	slots            = 16384                // that keys are spread over
)

// busPort is the name of the port on which the servers of a cluster talk to each other.
const busPort = "bus"

// Cluster is Redis Cluster: three primaries that share the keys, with a replica each.
func Cluster() listed.Backend {
	return listed.Backend{
		Backend: backends.Backend{
			Name: nameCluster,
			Doc: "Redis Cluster: three primaries that share the keys among them, with a replica each; replication is asynchronous, so that a " +
				"promoted replica may not know the newest grants.",
			Locks:   outlasting(clusterDefaults().NodeTimeout, locks()),
			Servers: backends.Servers{Standby: true, CountsConnections: true},
		},
		Maker: topology.Maker{Attachable: []string{Port}, Syncing: syncing, OneThread: true, New: newCluster, Health: health},
	}
}

// ClusterParams is what a scenario may set beside the keys that all backends have.
type ClusterParams struct {
	// Persistence is what each server writes to disk, as for one server; see Params.
	Persistence string `yaml:"persistence"`
	// NodeTimeout is how long a server must be silent before others take it for failed.
	NodeTimeout time.Duration `yaml:"node_timeout"`
	WriteRule   `yaml:",inline"`
	LockParams  `yaml:",inline"`
}

func clusterDefaults() ClusterParams {
	return ClusterParams{Persistence: "none", NodeTimeout: 500 * time.Millisecond, LockParams: lockDefaults()}
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
	return p.LockParams.check(1)
}

// sharded is the topology.
type sharded struct {
	common topology.Common
	params ClusterParams
}

func newCluster(c topology.Common, decode func(into any) error) (topology.Topology, error) {
	p := clusterDefaults()
	if err := decode(&p); err != nil {
		return nil, err
	}
	if err := errors.Join(p.check(), p.checkWait(c), checkPrefix(c)); err != nil {
		return nil, fmt.Errorf("backend %s: %w", nameCluster, err)
	}
	if c.Attached == nil && c.Nodes != 0 && c.Nodes != clusterServers {
		return nil, fmt.Errorf("backend %s: nodes is %d; it runs %d primaries with a replica each: leave it out", nameCluster, c.Nodes, clusterPrimaries)
	}
	return sharded{common: c, params: p}, nil
}

// Specs describes the servers. The first three begin as primaries, the fourth follows the first, and so on; Ready introduces them
// to each other. Of somebody else's cluster they are those that the user named.
func (s sharded) Specs() []node.Spec {
	servers := clusterServers
	if s.common.Attached != nil {
		servers = s.common.Attached.Ports[Port]
	}
	specs := make([]node.Spec, 0, servers)
	for i := range servers {
		spec := dataNode(serverName(i), func(p node.Place) []string { return s.server(p, p.Address(p.Self, Port), p.Address(p.Self, busPort)) })
		spec.Ports = append(spec.Ports, node.Port{Name: busPort, Number: 16379})
		specs = append(specs, spec)
	}
	return specs
}

// replicaValidity is for how long a replica without its primary may be elected: what Redis' own defaults, ten times 15 s, come to.
const replicaValidity = 150 * time.Second

// server is the argv of a server that clients reach at address, and the others at bus.
func (s sharded) server(place node.Place, address, bus string) []string {
	host, port := splitAddress(address)
	_, busNumber := splitAddress(bus)
	return slices.Concat(command(place, address, s.params.Persistence), s.params.WriteRule.options(), []string{
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", strconv.FormatInt(s.params.NodeTimeout.Milliseconds(), 10),
		// By default ten times the timeout: at 500 ms a replica that has lost one election is too old for the next, and nobody serves its slots again.
		"--cluster-replica-validity-factor", strconv.FormatInt(max(10, int64(replicaValidity/s.params.NodeTimeout)), 10),
		"--cluster-port", busNumber, "--cluster-announce-ip", host, "--cluster-announce-port", port, "--cluster-announce-bus-port", busNumber,
		// A replica that has heard nothing of its primary's offset is left out of CLUSTER SLOTS: each ping brings it.
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	})
}

// Params is what the clients get.
func (s sharded) Params() any {
	p := s.params.LockParams
	p.Detection = s.params.NodeTimeout
	return p
}

// Service returns the handle on the running nodes.
func (s sharded) Service(nodes []node.Handle) topology.Service {
	servers := membersOf(nodes, seen{port: Port, timeout: observeTimeout, keys: keyspace(s.common.Prefix())})
	out := &clusterService{params: s.params, members: servers, clusterGuest: clusterGuest{endpoints: servers, common: s.common}, buses: map[string]string{}}
	for _, n := range nodes {
		out.login, out.buses[n.Name()] = n.Login(), n.Address(busPort)
	}
	return out
}

// peer is one line of CLUSTER NODES.
type peer struct {
	id      string
	address string // for clients
	flags   []string
	primary string // id of the one that it follows, or "-"
	slots   [][2]int
}

// view is what one node of a cluster knows of all.
type view []peer

// view asks a node for its view.
func (m member) view(ctx context.Context) (view, error) {
	text, err := m.client.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("CLUSTER NODES of %s: %w", m.name, err)
	}
	return parseView(text), nil
}

// parseView reads CLUSTER NODES: "id address@bus flags primary ping pong epoch link slot...". Slots on their way from one node to
// another, in brackets, are left out.
func parseView(text string) view {
	var out view
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		address, _, _ := strings.Cut(words[1], "@")
		p := peer{id: words[0], address: address, flags: strings.Split(words[2], ","), primary: words[3]}
		for _, w := range words[8:] {
			from, to, ranged := strings.Cut(w, "-")
			if !ranged {
				to = from
			}
			first, err1 := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err1 == nil && err2 == nil {
				p.slots = append(p.slots, [2]int{first, last})
			}
		}
		out = append(out, p)
	}
	return out
}

// viewOfSlot asks a node for its view, and for the slot of a lock.
func viewOfSlot(ctx context.Context, m member, lockName string) (view, int, error) {
	slot, err := m.client.ClusterKeySlot(ctx, m.keys.key(lockName)).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("CLUSTER KEYSLOT of %s: %w", m.name, err)
	}
	v, err := m.view(ctx)
	return v, int(slot), err
}

// self is the node that was asked.
func (v view) self() peer {
	for _, p := range v {
		if slices.Contains(p.flags, "myself") {
			p.flags = slices.DeleteFunc(slices.Clone(p.flags), func(f string) bool { return f == "myself" })
			return p
		}
	}
	return peer{}
}

// owner is the primary of a slot, or nil.
func (v view) owner(slot int) *peer {
	for i := range v {
		for _, r := range v[i].slots {
			if r[0] <= slot && slot <= r[1] {
				return &v[i]
			}
		}
	}
	return nil
}

// roleFor is the asked node's own role for a slot.
func (v view) roleFor(slot int) string {
	self, owner := v.self(), v.owner(slot)
	switch {
	case owner == nil:
	case owner.id == self.id:
		return "master"
	case owner.id == self.primary:
		return "slave"
	}
	return "none"
}
