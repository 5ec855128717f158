// Package listed joins the two sides of a backend: what its clients need, and what a provider needs.
package listed

import (
	"encoding/json"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// Backend is a service in one topology.
type Backend struct {
	backends.Backend
	topology.Maker
}

// Declaring is a Topology that decides from the scenario what its lock offers and promises.
type Declaring interface {
	Declare(l backends.Lock) backends.Lock
}

// Declared returns a lock with everything that its topology decides about its offers and promises.
func Declared(l backends.Lock, t topology.Topology) backends.Lock {
	if d, ok := t.(Declaring); ok {
		l = d.Declare(l)
	}
	l.Offers.WallClock = WallClock(l, t)
	return l
}

// WallClock reports whether a lock's grants end by a wall clock on that topology.
func WallClock(l backends.Lock, t topology.Topology) bool {
	w, ok := t.(topology.WallClocked)
	return l.Offers.WallClock || ok && l.Offers.Expires && w.WallClock()
}

// Clients returns the client side of each backend.
func Clients(list []Backend) []backends.Backend {
	out := make([]backends.Backend, len(list))
	for i, b := range list {
		out[i] = b.Backend
	}
	return out
}

// Reach adds to an access what clients must know about a running topology: its parameters, and its servers' addresses
// and logins.
func Reach(a backends.Access, t topology.Topology, servers []node.Handle) (backends.Access, error) {
	params, err := json.Marshal(t.Params())
	if err != nil {
		return a, fmt.Errorf("parameters of %s: %w", a.Backend, err)
	}
	a.Params = params
	ports := map[string][]node.Port{}
	for _, s := range t.Specs() {
		ports[s.Name] = s.Ports
	}
	for _, n := range servers {
		e := backends.Endpoint{Name: n.Name(), Addresses: map[string]string{}}
		for _, p := range ports[n.Name()] {
			if at := n.Address(p.Name); at != "" {
				e.Addresses[p.Name] = at
			}
		}
		switch own := n.Login(); {
		case len(a.Nodes) == 0:
			a.Login = own
		case own != a.Login:
			e.Login = &own
		}
		a.Nodes = append(a.Nodes, e)
	}
	return a, nil
}
