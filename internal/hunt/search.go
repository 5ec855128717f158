package hunt

import (
	"slices"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/results"
)

// search is what the runs of the search have shown so far.
type search struct {
	phase
	corpus  corpus
	found   []Finding // by goal, the first of each
	bites   []behaviour.Bite
	unknown int // runs whose verdict was unknown
	grants  int64
}

// Finding is the first run that reached a goal.
type Finding struct {
	Violation
	Script script.Script `json:"script"`
	Run    int           `json:"run"`   // of the search, from 1
	At     int64         `json:"at_ms"` // the time of all runs up to it
	Dir    string        `json:"run_dir"`
	Others []string      `json:"others,omitempty"` // counts that were above zero beside it
}

// take takes in a run. It returns the run's directory if that may be removed when room is short: a run that found
// something stays.
func (s *search) take(r campaign.Result, n Note, wanted []Goal) (dir string) {
	s.add(r)
	at := s.spent.Milliseconds()
	s.grants += r.Judged.Grants
	if r.Verdict == results.Unknown {
		s.unknown++
		n.Near = nil // its relatives would be unknown, too
	}
	s.corpus.learn(n, s.runs, at)
	for _, b := range n.Bit {
		s.bites = behaviour.AddBite(s.bites, b)
	}
	dir = r.Dir
	for _, v := range n.Found {
		if s.finding(v.Goal) == nil && slices.ContainsFunc(wanted, func(g Goal) bool { return g.Name == v.Goal }) {
			s.found = append(s.found, Finding{
				Violation: v, Script: n.Script, Run: s.runs, At: at, Dir: r.Dir, Others: n.Others,
			})
			dir = ""
		}
	}
	return dir
}

func (s *search) finding(goal string) *Finding {
	for i := range s.found {
		if s.found[i].Goal == goal {
			return &s.found[i]
		}
	}
	return nil
}

// worst returns the finding of the first goal that was reached; nil if none was.
func (s *search) worst(wanted []Goal) *Finding {
	for _, g := range wanted {
		if f := s.finding(g.Name); f != nil {
			return f
		}
	}
	return nil
}
