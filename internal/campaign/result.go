package campaign

import (
	"encoding/json"

	"github.com/lockquake/lockquake/results"
)

// Result is what came of a job: a line of the journal. It has of the run's verdict.json what outlives the run's
// directory.
type Result struct {
	Job  string `json:"job"` // its name
	Seed uint64 `json:"seed,omitempty"`
	Dir  string `json:"run_dir,omitempty"` // as seen from the campaign's directory
	Took int64  `json:"took_ms"`
	// Broke says why a run that was made is not whole; its verdict is unknown then, if it has one.
	Broke string `json:"broke,omitempty"`

	Verdict   results.Verdict     `json:"verdict,omitempty"`
	Reasons   []string            `json:"reasons,omitempty"`
	Judged    results.Judged      `json:"judged"`
	Counts    map[string]*int64   `json:"counts,omitempty"`
	Measures  map[string]*float64 `json:"measures,omitempty"`
	Failovers []results.Failover  `json:"failovers,omitempty"`
	Uncovered results.Uncovered   `json:"uncovered,omitempty"`
	Versions  map[string]string   `json:"versions,omitempty"`
	Kept      bool                `json:"kept,omitempty"`
	Replay    string              `json:"replay,omitempty"`

	// Note is what the campaign's reader has added.
	Note json.RawMessage `json:"note,omitempty"`

	// NotMade says why the run was not made; "": it was. Such a job may be made when the campaign goes on, so it is not
	// in the journal.
	NotMade string `json:"-"`
	// What follows is known in the process that made the run: the error that it ended with, or that no run could be
	// made with; the one of its judging; its whole verdict; and its directory ("": none).
	Err         error          `json:"-"`
	Unjudged    error          `json:"-"`
	Report      results.Report `json:"-"`
	At          string         `json:"-"`
	Interrupted bool           `json:"-"` // it was cut short, and is told to the reader alone
}

// take keeps of a verdict what a journal has.
func (r *Result) take(rep results.Report) {
	r.Report = rep
	r.Verdict, r.Reasons, r.Judged, r.Counts, r.Measures, r.Failovers = rep.Verdict, rep.Reasons, rep.Judged,
		rep.Counts, rep.Measures, rep.Failovers
	r.Uncovered, r.Versions, r.Kept, r.Replay = rep.Uncovered, rep.Versions, rep.Kept, rep.Replay
}
