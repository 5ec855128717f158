package story

import (
	"fmt"

	"github.com/lockquake/lockquake/results/figure"
)

// gap adds for how long a lock could not be taken, and why, at the end of that time: its causes are above.
func (m marker) gap() {
	g := m.scene.Gap
	if g == nil {
		return
	}
	lane := max(m.story.Lanes.kind(LaneService), m.story.Lanes.kind(LaneNode), 0)
	m.story.add(Mark{
		Time: g.To - 1, Kind: MarkNote, Lane: lane, To: nowhere, Label: "unavailable for " +
			figure.Duration(g.To-g.From),
		Say: "until here, " + m.scene.Named(g.Text), Weight: weightTurn,
	})
}

// handoff adds the users that wait during a handoff, and its cost.
func (m marker) handoff() {
	h := m.scene.Handoff
	if h == nil {
		return
	}
	var labels, costs []string
	for _, c := range []struct{ measure, label, say string }{
		{"wakeups_per_handoff", "%.3g woken", "wakes %.3g of them"},
		{"requests_per_handoff", "%.3g requests", "costs the servers %.3g requests"},
	} {
		if n := m.scene.Report.Measures[c.measure]; n != nil {
			labels = append(labels, fmt.Sprintf(c.label, *n))
			costs = append(costs, fmt.Sprintf(c.say, *n))
		}
	}
	label := fmt.Sprintf("%d wait; a handoff: %s", h.Waiting, figure.List(labels))
	say := fmt.Sprintf("%d users wait for %s; on average a handoff %s", h.Waiting,
		m.scene.LockName(h.Last.Lock), figure.List(costs))
	m.story.add(Mark{
		Time: h.Released, Kind: MarkNote, Lane: m.story.Lanes.client(h.Last.User), To: nowhere, Label: label, Say: say,
		Weight: weightTurn,
	})
}
