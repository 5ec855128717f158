package chaos

import (
	"slices"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/internal/clock"
)

// Lane is one direction of one link, or of its packets with some ports.
type Lane struct {
	From, To         Node
	FromPort, ToPort int // 0: any
}

// hits reports whether a fault on this lane affects packets sent on the other.
func (l Lane) hits(sent Lane) bool {
	port := func(hit, of int) bool { return hit == 0 || hit == of }
	return l.From.Name() == sent.From.Name() && l.To.Name() == sent.To.Name() &&
		port(l.FromPort, sent.FromPort) && port(l.ToPort, sent.ToPort)
}

// LinkFaults records the active and the past link faults of a run, by link and direction. The datagrams that prove a
// fault or its heal meet all faults of their link at once, so they prove something only if no other fault interferes.
// The zero value and nil have no faults.
//
// Example: a loss of 30 % on redis-2 is healed while a partition of redis-2 is active. No datagram arrives, which says
// nothing about the loss. So the receipt of the heal names the partition and relies on the kernel's list of rules.
type LinkFaults struct {
	mu  sync.Mutex
	all []*LinkFault
}

// LinkFault is one link fault whose rules are, or may be, on these lanes.
type LinkFault struct {
	what     string // "loss on redis-1"
	on       []Lane
	from, to int64 // clock.Now before its rules were installed, and after they were seen gone; to is 0 until then
}

// Add records a fault whose rules are about to be installed.
func (l *LinkFaults) Add(what string, on []Lane) *LinkFault {
	one := &LinkFault{what: what, on: on, from: clock.Now()}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, one)
	}
	return one
}

// Remove records that a fault's rules are gone everywhere.
func (l *LinkFaults) Remove(one *LinkFault) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	one.to = clock.Now()
}

// Beside names other link faults: "partition on redis-2".
type Beside []string

// String returns the note for the receipt.
func (b Beside) String() string { return strings.Join(b, ", ") + " was active there too" }

// Others returns the other faults that were active on a lane at any time since then.
func (l *LinkFaults) Others(mine *LinkFault, on Lane, since int64) Beside {
	return l.find(mine, on, func(one *LinkFault) bool { return one.to == 0 || one.to >= since })
}

// Changed returns the other faults that came to a lane or left it since then.
func (l *LinkFaults) Changed(mine *LinkFault, on Lane, since int64) Beside {
	return l.find(mine, on, func(one *LinkFault) bool { return one.from >= since || one.to >= since })
}

func (l *LinkFaults) find(mine *LinkFault, on Lane, when func(*LinkFault) bool) Beside {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out Beside
	for _, one := range l.all {
		if one == mine || !when(one) {
			continue
		}
		if slices.ContainsFunc(one.on, func(its Lane) bool { return its.hits(on) }) {
			out = append(out, one.what)
		}
	}
	return out
}

// NamesOf lists nodes.
func NamesOf[T Node](nodes []T) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name())
	}
	return strings.Join(out, ", ")
}
