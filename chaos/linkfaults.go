package chaos

import (
	"slices"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/internal/clock"
)

// Lane is one direction of one link.
type Lane struct {
	From, To         Node
	FromPort, ToPort int // 0: any
}

// hits tells whether a fault on this lane meets what is sent on the other.
func (l Lane) hits(sent Lane) bool {
	port := func(hit, of int) bool { return hit == 0 || hit == of }
	return l.From == sent.From && l.To == sent.To && port(l.FromPort, sent.FromPort) && port(l.ToPort, sent.ToPort)
}

// Lanes knows which link faults of a run stand, and stood, on which directions of which links. What a fault's datagrams show of a link is the
// sum of all that stands there: each heal is judged by them only where nothing else does. The zero value knows of none, and so does nil.
type Lanes struct {
	mu   sync.Mutex
	laid []*Laid
}

// Laid is one link fault: its rules stand on these lanes, or may.
type Laid struct {
	what     string // "loss on redis-1"
	on       []Lane
	from, to int64 // clock.Now before its rules were put up, and after they were seen gone; to is 0 until then
}

// Lay notes a fault whose rules are about to be put up.
func (l *Lanes) Lay(what string, on []Lane) *Laid {
	one := &Laid{what: what, on: on, from: clock.Now()}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.laid = append(l.laid, one)
	}
	return one
}

// Lift notes that a fault's rules are gone everywhere.
func (l *Lanes) Lift(one *Laid) {
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
func (l *Lanes) Others(mine *Laid, on Lane, since int64) Beside {
	return l.find(mine, on, func(one *Laid) bool { return one.to == 0 || one.to >= since })
}

// Changed names the faults beside one that came to a lane or left it since.
func (l *Lanes) Changed(mine *Laid, on Lane, since int64) Beside {
	return l.find(mine, on, func(one *Laid) bool { return one.from >= since || one.to >= since })
}

func (l *Lanes) find(mine *Laid, on Lane, when func(*Laid) bool) Beside {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out Beside
	for _, one := range l.laid {
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
