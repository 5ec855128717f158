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

// hits tells whether a fault on this lane meets what is sent on the other.
func (l Lane) hits(sent Lane) bool {
	port := func(hit, of int) bool { return hit == 0 || hit == of }
	return l.From.Name() == sent.From.Name() && l.To.Name() == sent.To.Name() &&
		port(l.FromPort, sent.FromPort) && port(l.ToPort, sent.ToPort)
}

// LinkFaults records which link faults of a run stand, and stood, on which directions of which links. The datagrams
// that prove a fault or its heal meet all faults of their link at once, so they prove something only where no other
// fault interferes. The zero value has none, and so does nil.
//
// Example: a loss of 30 % on redis-2 is healed while a partition of redis-2 stands. No datagram arrives, which says
// nothing about the loss. The receipt of the heal names the partition and relies on the kernel's list of rules instead.
type LinkFaults struct {
	mu  sync.Mutex
	all []*LinkFault
}

// LinkFault is one link fault: its rules stand on these lanes, or may.
type LinkFault struct {
	what     string // "loss on redis-1"
	on       []Lane
	from, to int64 // clock.Now before its rules were put up, and after they were seen gone; to is 0 until then
}

// Add notes a fault whose rules are about to be put up.
func (l *LinkFaults) Add(what string, on []Lane) *LinkFault {
	one := &LinkFault{what: what, on: on, from: clock.Now()}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, one)
	}
	return one
}

// Remove notes that a fault's rules are gone everywhere.
func (l *LinkFaults) Remove(one *LinkFault) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	one.to = clock.Now()
}

// Beside names other link faults: "partition on redis-2".
type Beside []string

// String says that they stood there.
func (b Beside) String() string { return strings.Join(b, ", ") + " stood there too" }

// Others names the faults beside one that have met what was sent on a lane at any time since.
func (l *LinkFaults) Others(mine *LinkFault, on Lane, since int64) Beside {
	return l.find(mine, on, func(one *LinkFault) bool { return one.to == 0 || one.to >= since })
}

// Changed names the faults beside one that came to a lane or left it since.
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
