package results

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
)

// Majority says who must agree before a lock is granted: more than half of some servers.
type Majority struct {
	Servers []string `json:"servers"`
	// Apart says that the servers do not know each other, so that each client must reach a majority itself. Otherwise
	// one server that reaches a majority is enough.
	Apart bool `json:"apart,omitempty"`
}

// Missing reports whether there certainly was no majority from one time to another, and which servers were left. It
// relies on the receipts of faults that stood all that time. With a client's name the servers left are those that it
// could reach; without one, the largest group that could reach each other. Example: etcd-3 and client-1 are cut off
// from etcd-1 and etcd-2. Client-1 reaches etcd-3, which reaches no other server, so no server in client-1's reach
// has a majority.
func (m *Majority) Missing(faults []history.Fault, client string, from, to int64) (left []string, missing bool) {
	if m == nil || len(m.Servers) == 0 {
		return nil, false
	}
	faults = slices.DeleteFunc(slices.Clone(faults), func(f history.Fault) bool { return !stands(f, from, to) })
	up := func(node string) bool {
		return !slices.ContainsFunc(faults, func(f history.Fault) bool {
			return (f.Traits.Kills || f.Traits.Halts) && slices.Contains(f.Targets, node)
		})
	}
	linked := func(a, b string) bool {
		return a == b || !slices.ContainsFunc(faults,
			func(f history.Fault) bool { return f.Traits.Cuts && between(f, a, b) })
	}
	var most []string
	for _, s := range m.Servers {
		if !up(s) || client != "" && !linked(client, s) {
			continue
		}
		left = append(left, s)
		side := slices.DeleteFunc(slices.Clone(m.Servers), func(o string) bool { return !up(o) || !linked(s, o) })
		if len(side) > len(most) {
			most = side
		}
	}
	switch {
	case m.Apart:
		return left, 2*len(left) <= len(m.Servers)
	case client == "":
		left = most
	}
	return left, 2*len(most) <= len(m.Servers)
}

// Dead returns the servers that were dead from one time to another because of a fault.
func (m *Majority) Dead(faults []history.Fault, from, to int64) (dead []string) {
	if m == nil {
		return nil
	}
	for _, s := range m.Servers {
		if slices.ContainsFunc(faults, func(f history.Fault) bool {
			return stands(f, from, to) && f.Traits.Kills && slices.Contains(f.Targets, s)
		}) {
			dead = append(dead, s)
		}
	}
	return dead
}

// stands reports whether a fault certainly stood from one time to another.
func stands(f history.Fault, from, to int64) bool {
	end := f.End
	if f.Undo != 0 && f.Traits != nil && !f.Traits.Kills { // a killed server only serves once the heal is done
		end = f.Undo
	}
	return f.Traits != nil && f.Receipt.Status == history.Installed && f.Bit != 0 && f.Bit <= from &&
		(end == 0 || end >= to)
}

// between reports whether a link fault affects the link between two nodes.
func between(f history.Fault, a, b string) bool {
	return slices.Contains(f.Targets, a) && slices.Contains(f.Peers, b) || slices.Contains(f.Targets, b) &&
		slices.Contains(f.Peers, a)
}

// Left describes the servers that were left.
func (m *Majority) Left(left []string) string {
	of := fmt.Sprintf("%d servers", len(m.Servers))
	switch len(left) {
	case 0:
		return "none of the " + of
	case 1:
		return left[0] + " alone, of " + of
	}
	return fmt.Sprintf("only %s, of %s", strings.Join(left, " and "), of)
}
