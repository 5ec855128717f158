package node

import (
	"maps"
	"net"
	"strings"
)

// Place is what a node knows of the run's network when its command line is made. The zero value knows no nodes.
type Place struct {
	Self string // name of the node itself
	Dir  string // an empty, writable directory for its data
	// Secret is the file with the node's Spec.Secret; "" if no password is required.
	Secret string
	// Folder is where the node finds its Spec.Folder; "" if it has none.
	Folder string

	addrs map[string]string // "node/port" -> "host:port"
	hosts map[string]string // node -> host
}

// RestoredMark is an empty file in a node's Place.Dir after its data were restored from a copy. A program that prepares
// such data before it serves then removes the file.
const RestoredMark = ".lockquake-restored"

// NewPlace returns the Place shared by all nodes of a run, before any has been placed.
func NewPlace() Place { return Place{addrs: map[string]string{}, hosts: map[string]string{}} }

// Put places a node at a host.
func (p Place) Put(node, host string) { p.hosts[node] = host }

// Open places a named port of a node.
func (p Place) Open(node, port, number string) {
	p.addrs[node+"/"+port] = net.JoinHostPort(p.hosts[node], number)
}

// Remove forgets where a node was placed.
func (p Place) Remove(node string) {
	delete(p.hosts, node)
	maps.DeleteFunc(p.addrs, func(name, _ string) bool { return strings.HasPrefix(name, node+"/") })
}

// Address returns "host:port" of a node's named port, as seen inside the run's network.
func (p Place) Address(node, port string) string { return p.addrs[node+"/"+port] }

// Host returns the host part alone.
func (p Place) Host(node string) string { return p.hosts[node] }

// Of returns the place of one node.
func (p Place) Of(name, dir string) Place {
	p.Self, p.Dir = name, dir
	return p
}

// Beside adds where the node finds its folder, if it has one.
func (p Place) Beside(s Spec, folder string) Place {
	if s.Folder != "" {
		p.Folder = folder
	}
	return p
}

// Guarded adds the file of the node's secret, if it has one.
func (p Place) Guarded(s Spec, file string) Place {
	if s.Secret != nil {
		p.Secret = file
	}
	return p
}
