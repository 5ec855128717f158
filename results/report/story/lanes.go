package story

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/report/scene"
)

// lanesOf puts the first user to the left, the lock service and the resource in the middle, and all others to the
// right. So no arrow crosses a hold of the two that matter most. A server has its own lane if it did something of its
// own.
func lanesOf(sc *scene.Scene) Lanes {
	var all Lanes
	nodes := sc.Nodes()
	for i, u := range sc.Users {
		l := Lane{Kind: LaneClient, Name: sc.Name(u), Sub: fmt.Sprintf("user %d", u.Index()), User: u, Hue: i}
		if !strings.HasPrefix(l.Name, history.ClientName(u.Client())) {
			l.Sub = history.ClientName(u.Client())
		}
		all = append(all, l)
		if i > 0 {
			continue
		}
		if len(nodes) == 0 && !sc.Env.NoLock {
			all = append(all, Lane{Kind: LaneService, Name: "lock service", Sub: cmp.Or(sc.Env.Backend, "unknown")})
		}
		for _, n := range nodes {
			all = append(all, Lane{Kind: LaneNode, Name: n})
		}
		if sc.Touched() {
			all = append(all, Lane{
				Kind: LaneResource, Name: cmp.Or(sc.Env.Resource, "resource"),
				Sub: "guard " + cmp.Or(sc.Env.Guard, "none"),
			})
		}
	}
	return all
}

// Lanes are the participants of a story, from left to right.
type Lanes []Lane

// client returns the lane of a user; -1 without one.
func (ls Lanes) client(u history.User) int {
	return slices.IndexFunc(ls, func(l Lane) bool { return l.Kind == LaneClient && l.User == u })
}

// node returns the lane of a server; -1 without one.
func (ls Lanes) node(name string) int {
	return slices.IndexFunc(ls, func(l Lane) bool { return l.Kind == LaneNode && l.Name == name })
}

// kind returns the first lane of a kind; -1 without one.
func (ls Lanes) kind(k LaneKind) int {
	return slices.IndexFunc(ls, func(l Lane) bool { return l.Kind == k })
}
