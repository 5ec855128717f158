package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// Promise is what a schedule must not do to the service. An injection that would break it is not made, so that a result
// says what the lock does while a majority of its servers is well, for example. The zero value promises nothing.
//
// Example: with Majority and three servers, a pause of etcd-1 stands. A kill of etcd-2 comes due: one of three servers
// would be left, which is no majority. The kill is recorded as not made, with that reason. A second fault on etcd-1
// would be made, unless Apart.
type Promise struct {
	Apart    bool // no node is the target of two injections at once
	Serial   bool // no two injections stand at once
	Majority bool // more than half of the servers of each kind are left alone at any time
}

// None tells whether nothing is promised.
func (p Promise) None() bool { return p == Promise{} }

// Reach is the nodes that one injection hits.
type Reach struct {
	Targets []string
	// Servers are those that can no longer be counted on: the targets among the servers, or, of a link fault, the side
	// with fewer servers. If these were away, every link that is left would be whole.
	Servers []string
}

// NewReach computes the reach of an injection from its targets and, for link faults, the other ends.
func NewReach(targets, peers, servers, clients []string) Reach {
	r := Reach{Targets: targets}
	on, far := common(targets, servers), common(peers, servers)
	r.Servers = on
	switch {
	case len(peers) == 0:
	case len(on) == 0 && len(common(targets, clients)) < len(clients) && len(far) == len(servers):
		// Clients that are cut off from every server are those in trouble, not the servers; as long as others remain.
	case len(on) == 0 || len(far) > 0 && len(far) < len(on):
		r.Servers = far
	}
	return r
}

func common(a, b []string) []string {
	var out []string
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// Broken says why an injection may not be made beside those that stand, or "".
func (p Promise) Broken(servers []string, standing []Reach, next Reach) string {
	if p.Serial && len(standing) > 0 {
		return fmt.Sprintf("another one stands, on %s, and none may overlap", strings.Join(standing[0].Targets, ", "))
	}
	if p.None() {
		return ""
	}
	down := slices.Clone(next.Servers)
	for _, s := range standing {
		if both := common(s.Targets, next.Targets); p.Apart && len(both) > 0 {
			return fmt.Sprintf("another one stands on %s, and only those on other nodes may overlap",
				strings.Join(both, ", "))
		}
		down = append(down, s.Servers...)
	}
	if !p.Majority || len(next.Servers) == 0 {
		return ""
	}
	all, hit := map[string]int{}, map[string][]string{}
	for _, s := range servers {
		all[serverKind(s)]++
		if slices.Contains(down, s) {
			hit[serverKind(s)] = append(hit[serverKind(s)], s)
		}
	}
	for _, s := range servers {
		kind := serverKind(s)
		if left := all[kind] - len(hit[kind]); 2*left <= all[kind] {
			return fmt.Sprintf("with %s hit, %d of %d servers would be left alone, which is no majority",
				strings.Join(hit[kind], ", "), left, all[kind])
		}
	}
	return ""
}

// serverKind is the name of a node without its number: a majority of Sentinels is no majority of the servers that they
// watch.
func serverKind(name string) string { return strings.TrimRight(name, "-0123456789") }
