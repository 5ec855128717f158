// Package hunt searches for the shortest script of faults that breaks a lock. It is a plan of a campaign, and the
// reader of its runs.
//
// A search draws scripts, runs each, and looks at what the run shows (package behaviour). A script whose run shows
// something new is kept, and mutated for later tries (package script). The search ends with the first violation of
// its first goal, or with its budget. Then a script that broke the lock is made smaller, as long as each smaller one
// breaks it in 9 of 10 runs. The result is handed out as a scenario that `lockquake run` judges like any other.
//
// The next run is a function of the seed and of the results in the journal. So a resumed hunt continues with the run
// that it would have made next.
package hunt

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/scenarios"
)

// Scripts is the source of the tries of a hunt. script.Space implements it for a lock on this machine.
type Scripts interface {
	Draw(r *rand.Rand) script.Script
	Mutate(r *rand.Rand, of script.Script, with []script.Script) script.Script
	Scenario(x script.Script, asked bool) (scenarios.Scenario, error)
	Reductions(x script.Script) []script.Script
	Size(x script.Script) script.Size
}

// Hunt is a search and what follows it. It implements campaign.Plan and campaign.Reader.
type Hunt struct {
	Scripts Scripts
	Goals   []Goal // in their order, at least one
	Seed    uint64
	// Budget bounds the time of the search, and ShrinkBudget that of all runs after it.
	Budget, ShrinkBudget time.Duration
	Random               bool            // every script is drawn: the baseline of the guided search
	Seeds                []script.Script // tried first
	// Takes estimates the time of a run with a given load, until one has been made.
	Takes func(load time.Duration) time.Duration
	// Options returns the options for a run of a scenario.
	Options func(scenarios.Scenario) engine.Options
	Keep    Keep
	// Tell is called with the progress of the hunt.
	Tell func(engine.Progress)

	// Err is why nothing more can be run; nil if runs are possible.
	Err error

	folded  int // how many results have been taken into account
	search  search
	shrink  *shrinker // nil: the search is not over
	idle    int       // consecutive jobs that were not made, or broke
	under   Note
	telling telling
}

// phase is the runs of one part of the hunt.
type phase struct {
	runs  int
	spent time.Duration
}

func (p *phase) add(r campaign.Result) {
	p.runs++
	p.spent += time.Duration(r.Took) * time.Millisecond
}

// Note is the journal's note on a run of a hunt, beside its verdict.
type Note struct {
	Script script.Script `json:"script"`
	From   int           `json:"from,omitempty"` // number of the entry it was mutated from, from 1; 0: it was drawn
	// New lists behaviours that no earlier run had shown; Had holds the numbers of the others.
	New  []string           `json:"new,omitempty"`
	Had  []int              `json:"had,omitempty"`
	Near map[string]float64 `json:"near,omitempty"`
	Bit  []behaviour.Bite   `json:"bit,omitempty"`

	Found  []Violation `json:"found,omitempty"`
	Others []string    `json:"others,omitempty"` // counts beside the goals that had to be zero and were not
	// Reached says that a run of the shrinking reached its goal, and Unsure that it does not show whether.
	Reached bool `json:"reached,omitempty"`
	Unsure  bool `json:"unsure,omitempty"`
}

// The names of jobs begin with their phase.
const (
	jobSearch = "search"
	jobShrink = "shrink"
)

// patience is how many consecutive jobs may fail before the hunt gives up.
const patience = 5

// Next returns the next job.
func (h *Hunt) Next(done []campaign.Result) (campaign.Job, bool) {
	h.fold(done)
	if h.Err != nil {
		return campaign.Job{}, false
	}
	if h.shrink == nil {
		if j, ok := h.propose(); ok || h.Err != nil {
			return j, ok
		}
		h.shrink = newShrinker(h)
	}
	return h.shrink.next()
}

// fold takes in the new results.
func (h *Hunt) fold(done []campaign.Result) {
	for _, r := range done[h.folded:] {
		h.folded++
		if r.NotMade != "" {
			h.fail(r)
			continue
		}
		var n Note
		if err := json.Unmarshal(r.Note, &n); err != nil {
			h.Err = fmt.Errorf("the note of run %d of the journal: %w", h.folded, err)
			return
		}
		if r.Broke != "" {
			h.fail(r)
		} else {
			h.idle = 0
		}
		switch r.Job {
		case jobSearch:
			if dir := h.search.take(r, n, h.Goals); dir != "" {
				if err := h.Keep.add(h.Keep.path(dir)); err != nil {
					h.Err = err
				}
			}
		case jobShrink:
			if h.shrink == nil {
				h.shrink = newShrinker(h)
			}
			h.shrink.take(r, n)
		}
	}
}

// fail counts consecutive failed jobs.
func (h *Hunt) fail(r campaign.Result) {
	if h.idle++; h.idle < patience || h.Err != nil {
		return
	}
	if h.Err = r.Err; h.Err == nil {
		h.Err = fmt.Errorf("%d runs in a row broke, the last one because %s", h.idle, r.Broke+r.NotMade)
	}
}

// takes estimates the time of the next run.
func (h *Hunt) takes(p phase, load time.Duration) time.Duration {
	if p.runs == 0 {
		return h.Takes(load)
	}
	return p.spent / time.Duration(p.runs)
}

// drawTries is how many consecutive scripts may be rejected before the hunt gives up.
const drawTries = 100

// propose returns the next job of the search; ok is false when the search is over.
func (h *Hunt) propose() (j campaign.Job, ok bool) {
	if h.search.finding(h.Goals[0].Name) != nil {
		return j, false
	}
	r := seed.Rand(h.Seed, fmt.Sprintf("hunt-%d-%d", h.search.runs, h.idle))
	var refused error
	long := false // a script does not fit into the rest of the budget
	for attempt := range drawTries {
		n := h.draw(r, attempt)
		if h.search.spent+h.takes(h.search.phase, n.Script.For) > h.Budget {
			long = true
			continue
		}
		asked := slices.ContainsFunc(h.Goals, func(g Goal) bool { return g.Asks })
		s, err := h.scenario(n.Script, asked, forbid(h.Goals))
		if err != nil {
			refused = err
			continue
		}
		h.under = n
		return h.job(jobSearch, s, seed.Split(h.Seed, fmt.Sprintf("run-%d", h.search.runs))), true
	}
	if !long {
		h.Err = fmt.Errorf("none of %d scripts can be run: %w", drawTries, refused)
	}
	return j, false
}

// draw returns the note of the search's next script.
func (h *Hunt) draw(r *rand.Rand, attempt int) Note {
	share := r.Float64() // taken in any case, so that both arms of a comparison draw the same scripts
	switch {
	case attempt == 0 && h.search.runs < len(h.Seeds):
		return Note{Script: h.Seeds[h.search.runs]}
	case h.Random, share < h.search.corpus.drawn(h.Goals):
		return Note{Script: h.Scripts.Draw(r)}
	}
	of, number := h.search.corpus.pick(r, h.Goals)
	var with []script.Script
	for range 2 {
		other, _ := h.search.corpus.pick(r, h.Goals)
		with = append(with, other.script)
	}
	return Note{Script: h.Scripts.Mutate(r, of.script, with), From: number}
}

// scenario writes a script as a scenario with the given changes. asked is as for script.Space.
func (h *Hunt) scenario(x script.Script, asked bool, sets ...string) (scenarios.Scenario, error) {
	s, err := h.Scripts.Scenario(x, asked)
	if err != nil {
		return s, err
	}
	return s.With(sets)
}

func (h *Hunt) job(name string, s scenarios.Scenario, random uint64) campaign.Job {
	return campaign.Job{Name: name, Options: h.Options(s), Seed: max(random>>22, 1)}
}
