package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/lockquake/lockquake/internal/node"
)

// At returns the nodes of specs in a network that is not ours, at the addresses that a run in that network would
// give them. They can be dialled and asked for their commands; starting and signalling them is not ours.
func At(specs []node.Spec, network netip.Prefix) []*Node {
	place := ownAddresses(specs, network)
	nodes := make([]*Node, 0, len(specs))
	for _, s := range specs {
		n := newNode(s, place.Of(s.Name, dataDir))
		n.driver = outside{}
		nodes = append(nodes, n)
	}
	return nodes
}

// ContainerImage is the project's own image for a node's image key, and ContainerData the directory for its data there.
func ContainerImage(key string) string {
	if key == node.SelfProgram {
		return selfImage + ":latest"
	}
	return projectImage(key)
}

// ContainerData is Place.Dir in containers.
const ContainerData = dataDir

// ContainerCommand is the argv of the node's process in a container.
func (n *Node) ContainerCommand() []string { return inContainer(n.spec.Command(n.place)) }

// Host returns the host part of the node's addresses.
func (n *Node) Host() string { return n.place.Host(n.Name()) }

// inContainer puts the path of our own binary in an image in its place.
func inContainer(argv []string) []string {
	argv = slices.Clone(argv)
	if len(argv) > 0 && argv[0] == node.SelfProgram {
		argv[0] = selfInImage
	}
	return argv
}

// outside drives a node that is not ours.
type outside struct{}

var errOutside = errors.New("the node is not ours to start or signal")

func (outside) start(context.Context) (Stdio, *ending, error) {
	return Stdio{}, nil, errOutside
}

func (outside) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return dialer.DialContext(ctx, "tcp", address)
}

func (outside) signaller(context.Context) (signaller, error) { return nil, errOutside }
