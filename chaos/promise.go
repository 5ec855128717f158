package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// Promise is a limit on what a schedule does to the service. An injection that would break it is not made. So a result
// can say, for example, how the lock behaves while a majority of its servers is healthy. The zero value promises
// nothing.
//
// Example: with Majority and three servers, etcd-1 is paused. A kill of etcd-2 comes due. It would leave one of three
// servers, which is no majority, so it is recorded as not made, with that reason. A second fault on etcd-1 would be
// made, unless Apart is set.
type Promise struct {
	Apart    bool // no node is the target of two injections at once
	Serial   bool // no two injections stand at once
	Majority bool // more than half of the servers of each kind are healthy at any time
}

// None reports whether nothing is promised.
func (p Promise) None() bool { return p == Promise{} }

// Reach is the set of nodes that one injection affects.
type Reach struct {
	Targets []string
	// Servers are the servers that can no longer be relied on: the targets or, for a link fault, the side with fewer
	// servers. Without them no remaining link is affected.
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
		// Clients cut off from every server are the affected ones, not the servers, as long as other clients remain.
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

// Broken returns why an injection would break the promise, given the active ones, or "".
func (p Promise) Broken(servers []string, standing []Reach, next Reach) string {
	if p.Serial && len(standing) > 0 {
		return fmt.Sprintf("another one is active on %s, and none may overlap", strings.Join(standing[0].Targets, ", "))
	}
	if p.None() {
		return ""
	}
	down := slices.Clone(next.Servers)
	for _, s := range standing {
		if both := common(s.Targets, next.Targets); p.Apart && len(both) > 0 {
			return fmt.Sprintf("another one is active on %s, and only those on other nodes may overlap",
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
			return fmt.Sprintf("with %s hit, only %d of %d servers would be untouched, which is no majority",
				strings.Join(hit[kind], ", "), left, all[kind])
		}
	}
	return ""
}

// serverKind returns a node's name without its number: a majority of Sentinels is no majority of the servers that they
// watch.
func serverKind(name string) string { return strings.TrimRight(name, "-0123456789") }
