package report

import "github.com/lockquake/lockquake/results/figure"

// gap adds for how long a lock could not be taken, and why, at the end of that time: what led to it stands above.
func (m marker) gap() {
	g := m.scene.gap
	if g == nil {
		return
	}
	lane := max(m.story.Lanes.kind(laneService), m.story.Lanes.kind(laneNode), 0)
	m.story.add(mark{
		Time: g.To - 1, Kind: markNote, Lane: lane, To: nowhere, Label: "not to be had for " +
			figure.Duration(g.To-g.From),
		Say: "until here, " + m.scene.named(g.Text), Weight: weightTurn,
	})
}
