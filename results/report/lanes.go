package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
)

// lanesOf puts the first user to the left, the lock service and the resource in the middle, and everybody else to the
// right, so that no arrow crosses a hold of the two that matter most. A server has a lane of its own where it did
// something of its own.
func lanesOf(sc *scene) lanes {
	var all lanes
	nodes := sc.nodes()
	for i, u := range sc.users {
		l := lane{Kind: laneClient, Name: sc.name(u), Sub: fmt.Sprintf("user %d", u.Index()), User: u, Hue: i}
		if !strings.HasPrefix(l.Name, clientName(u)) {
			l.Sub = clientName(u)
		}
		all = append(all, l)
		if i > 0 {
			continue
		}
		if len(nodes) == 0 && !sc.env.NoLock {
			all = append(all, lane{Kind: laneService, Name: "lock service", Sub: cmp.Or(sc.env.Backend, "unknown")})
		}
		for _, n := range nodes {
			all = append(all, lane{Kind: laneNode, Name: n})
		}
		if sc.touched() {
			all = append(all, lane{
				Kind: laneResource, Name: cmp.Or(sc.env.Resource, "resource"),
				Sub: "guard " + cmp.Or(sc.env.Guard, "none"),
			})
		}
	}
	return all
}

// lanes are the participants of a story, from left to right.
type lanes []lane

// client finds the lane of a user; -1 where it has none.
func (ls lanes) client(u history.User) int {
	return slices.IndexFunc(ls, func(l lane) bool { return l.Kind == laneClient && l.User == u })
}

// node finds the lane of a server; -1 where it has none.
func (ls lanes) node(name string) int {
	return slices.IndexFunc(ls, func(l lane) bool { return l.Kind == laneNode && l.Name == name })
}

// kind finds the first lane of a kind; -1 where there is none.
func (ls lanes) kind(k laneKind) int {
	return slices.IndexFunc(ls, func(l lane) bool { return l.Kind == k })
}
