package report

import "github.com/lockquake/lockquake/results/figure"

// gapMark adds for how long a lock could not be taken, and why, at the end of that time: what led to it stands above.
func (s *story) gapMark() {
	g := s.scene.gap
	if g == nil {
		return
	}
	lane := max(s.lane(laneService), s.lane(laneNode), 0)
	s.add(mark{
		Time: g.To - 1, Kind: markNote, Lane: lane, To: nowhere, Label: "not to be had for " +
			figure.Duration(g.To-g.From),
		Say: "until here, " + s.scene.named(g.Text), Weight: weightTurn,
	})
}
