package hunt

import (
	"fmt"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/results/figure"
)

// tellEvery is how often the hunt prints its progress, beside news.
const tellEvery = 10 * time.Second

// longest is how many characters of a script are printed during the hunt.
const longest = 160

// telling is the last printed progress.
type telling struct {
	at      int64 // clock.Now()
	phase   string
	nearest string
}

// tell prints the progress of the hunt. Without a bar, some lines a minute are enough.
func (h *Hunt) tell(text string) {
	if h.Tell == nil {
		return
	}
	p := engine.Progress{Text: text}
	part, budget := h.search.phase, h.Budget
	if h.shrink != nil {
		part, budget = h.shrink.phase, h.ShrinkBudget
	}
	p.Elapsed, p.Total, p.Left = part.spent, budget, max(budget-part.spent, 0)
	if now := clock.Now(); text != "" || h.telling.phase == "" || now-h.telling.at >= int64(tellEvery) {
		h.telling.at, h.telling.phase = now, h.phase()
		if p.Text == "" {
			p.Text = h.news()
		}
	}
	p.Phase = h.telling.phase
	h.Tell(p)
}

// phase returns what the hunt does now, and how far it has come.
func (h *Hunt) phase() string {
	if s := h.shrink; s != nil {
		return fmt.Sprintf("shrink (%s, still %s)", figure.Of(s.phase.runs, "run"), sizeText(h.Scripts.Size(s.best.script)))
	}
	return fmt.Sprintf("search (%s, %s)", figure.Of(h.search.runs, "run"), figure.Of(len(h.search.corpus.runs), "behaviour"))
}

// sizeText describes the size of a script.
func sizeText(s script.Size) string {
	return figure.Of(s.Steps, "step") + " and " + figure.Of(s.Faults, "fault")
}

// news returns the best script so far if it has changed.
func (h *Hunt) news() string {
	if h.shrink != nil {
		return ""
	}
	e, goal, near := h.search.corpus.nearest(h.Goals)
	if goal == "" {
		return ""
	}
	text := figure.Shorten(fmt.Sprintf("nearest to %s (%.0f %%): %s", goal, 100*near, e.script.Text()), longest)
	if text == h.telling.nearest {
		return ""
	}
	h.telling.nearest = text
	return text
}

// told reports the result of a run that has just ended.
func (h *Hunt) told(job string, n Note) {
	for _, v := range n.Found {
		if job == jobSearch && h.search.finding(v.Goal) == nil {
			h.tell(fmt.Sprintf("run %d: %s %d: %s", h.search.runs+1, v.Goal, v.Count, v.Claim))
		}
	}
}
