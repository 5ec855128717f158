package chaos

import (
	"slices"
	"strings"
	"sync"

	"github.com/lockquake/lockquake/internal/clock"
)

// lane is one direction of one link.
type lane struct {
	from, to         Node
	fromPort, toPort int // 0: any
}

// hits tells whether a fault on this lane meets what is sent on the other.
func (l lane) hits(sent lane) bool {
	port := func(hit, of int) bool { return hit == 0 || hit == of }
	return l.from == sent.from && l.to == sent.to && port(l.fromPort, sent.fromPort) && port(l.toPort, sent.toPort)
}

// Lanes knows which link faults of a run stand, and stood, on which directions of which links. What a fault's datagrams show of a link is the
// sum of all that stands there: each heal is judged by them only where nothing else does. The zero value knows of none, and so does nil.
type Lanes struct {
	mu   sync.Mutex
	laid []*laid
}

// laid is one link fault: its rules stand on these lanes, or may.
type laid struct {
	what     string // "loss on redis-1"
	on       []lane
	from, to int64 // clock.Now before its rules were put up, and after they were seen gone; to is 0 until then
}

// lay notes a fault whose rules are about to be put up.
func (l *Lanes) lay(what string, on []lane) *laid {
	one := &laid{what: what, on: on, from: clock.Now()}
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.laid = append(l.laid, one)
	}
	return one
}

// lift notes that a fault's rules are gone everywhere.
func (l *Lanes) lift(one *laid) {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
	}
	one.to = clock.Now()
}

// beside names link faults: "partition on redis-2".
type beside []string

func (b beside) String() string { return strings.Join(b, ", ") + " stood there too" }

// others names the faults beside one that have met what was sent on a lane at any time since.
func (l *Lanes) others(mine *laid, on lane, since int64) beside {
	return l.find(mine, on, func(one *laid) bool { return one.to == 0 || one.to >= since })
}

// changed names the faults beside one that came to a lane or left it since.
func (l *Lanes) changed(mine *laid, on lane, since int64) beside {
	return l.find(mine, on, func(one *laid) bool { return one.from >= since || one.to >= since })
}

func (l *Lanes) find(mine *laid, on lane, when func(*laid) bool) beside {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out beside
	for _, one := range l.laid {
		if one == mine || !when(one) {
			continue
		}
		if slices.ContainsFunc(one.on, func(its lane) bool { return its.hits(on) }) {
			out = append(out, one.what)
		}
	}
	return out
}

// namesOf lists nodes.
func namesOf[T Node](nodes []T) string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name())
	}
	return strings.Join(out, ", ")
}
