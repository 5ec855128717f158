package engine

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// Drawn returns the plan's schedule, with every random pick made, as a plain scenario.
func (p *Plan) Drawn() []byte { return p.drawn(nil) }

// drawn is the schedule as it was drawn, as a plain scenario. What became of each injection stands behind it as a comment,
// by its place in the schedule.
func (p *Plan) drawn(became map[int]string) []byte {
	var list []scenarios.Plain
	for i, d := range p.schedule {
		x := scenarios.Plain{Use: d.inj.kind.Name, On: d.inj.selector.String(), At: d.at, For: d.lasts, Params: d.inj.own}
		if x.Note = became[i]; x.Note == "" && d.inj.on != x.On {
			x.Note = d.inj.on
		}
		list = append(list, x)
	}
	head := fmt.Sprintf(`The schedule of %s as seed %d drew it. lockquake run takes this file as it is, or trimmed.
Who is drawn is written down; leader, followers and holder are found anew.`, p.scenario.Name, p.scenario.Run.Seed)
	return p.scenario.Drawn(head, list)
}

// became says of each injection that was made by the schedule whom it hit, where only that moment could tell.
func (r *run) became() map[int]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[int]string{}
	for i, f := range r.faults {
		inj := r.injected[i]
		switch {
		case inj.place == 0:
		case f.Receipt.Status == history.NotMade:
			out[inj.place-1] = "not made: " + f.Receipt.Evidence
		case f.Target != inj.selector.String():
			out[inj.place-1] = f.Target
		}
	}
	return out
}

// writeDrawn writes the drawn schedule into the run directory.
func (r *run) writeDrawn() error {
	path := filepath.Join(r.dir, results.FileDrawn)
	if err := os.WriteFile(path, r.plan.drawn(r.became()), 0o644); err != nil {
		return MissingError{Text: fmt.Sprintf("run directory: %v", err)}
	}
	return nil
}

// settle makes the random picks of an injection's targets, so that they can be written down.
func (i *injection) settle(place int, sel chaos.Selector, draws string) {
	i.place, i.selector, i.draws = place, sel, "peers-at-"+draws
}
