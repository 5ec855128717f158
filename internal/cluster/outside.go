package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/lockquake/lockquake/internal/cluster/address"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/node"
)

// At returns the nodes of specs in an external network, at the addresses that a run in that network would give them.
// They can be dialled and asked for their commands, but not started or signalled.
func At(specs []node.Spec, network netip.Prefix) []*Node {
	place := address.PutAll(specs, network)
	nodes := make([]*Node, 0, len(specs))
	for _, s := range specs {
		n := newNode(s, place.Of(s.Name, dataDir))
		n.driver = outside{}
		nodes = append(nodes, n)
	}
	return nodes
}

// dataDir is Place.Dir in every container.
const dataDir = "/lockquake-data"

// ContainerImage returns the project's own image for an image key.
func ContainerImage(key string) string {
	if key == node.SelfProgram {
		return imagestore.SelfRepository + ":latest"
	}
	return imagestore.Project(key)
}

// ContainerData is Place.Dir in containers.
const ContainerData = dataDir

// inContainer replaces node.SelfProgram with the path of our own binary in an image.
func inContainer(argv []string) []string {
	argv = slices.Clone(argv)
	if len(argv) > 0 && argv[0] == node.SelfProgram {
		argv[0] = imagestore.SelfPath
	}
	return argv
}

// ContainerCommand returns the argv of the node's process in a container.
func (n *Node) ContainerCommand() []string { return inContainer(n.spec.Command(n.place)) }

// Host returns the host part of the node's addresses.
func (n *Node) Host() string { return n.place.Host(n.Name()) }

// Endpoint is the address of an external server.
type Endpoint struct {
	Port    string // the name of the port
	Address string // host:port
	Login   node.Login
}

// Attach returns nodes for external servers: each spec takes the next endpoint of its first port. They can be dialled,
// are never started, signalled or ended, and count as running.
func Attach(specs []node.Spec, endpoints []Endpoint) ([]*Node, error) {
	place := node.NewPlace()
	rest := slices.Clone(endpoints)
	var nodes []*Node
	for _, s := range specs {
		i := slices.IndexFunc(rest, func(e Endpoint) bool { return len(s.Ports) > 0 && e.Port == s.Ports[0].Name })
		if i < 0 {
			return nil, fmt.Errorf("there is no endpoint for %s", s.Name)
		}
		host, port, err := net.SplitHostPort(rest[i].Address)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("port of %s: %w", rest[i].Address, err)
		}
		s.Ports = []node.Port{{Name: rest[i].Port, Number: int(number)}}
		place.Put(s.Name, host)
		place.Open(s.Name, rest[i].Port, port)
		n := newNode(s, place.Of(s.Name, ""))
		n.driver, n.login, n.Process.end = outside{}, rest[i].Login, newEnding()
		nodes = append(nodes, n)
		rest = slices.Delete(rest, i, i+1)
	}
	return nodes, nil
}

// Join puts external nodes before the cluster's own. Close leaves them alone.
func (c *Cluster) Join(nodes []*Node) {
	c.changed.Lock()
	defer c.changed.Unlock()
	for _, n := range nodes {
		for _, own := range c.Nodes {
			own.place.Put(n.Name(), n.Host()) // for packet filter rules
		}
	}
	c.Nodes = append(slices.Clone(nodes), c.Nodes...)
}
