package campaign

import (
	"encoding/json"

	"github.com/lockquake/lockquake/results"
)

// Result is the result of a job: a line of the journal. From the run's verdict.json it keeps what must outlive the
// run's directory.
type Result struct {
	Job  string `json:"job"` // its name
	Seed uint64 `json:"seed,omitempty"`
	Dir  string `json:"run_dir,omitempty"` // relative to the campaign's directory
	Took int64  `json:"took_ms"`
	// Broke is the reason why a run is incomplete. Its verdict, if any, is then unknown.
	Broke string `json:"broke,omitempty"`

	Verdict    results.Verdict     `json:"verdict,omitempty"`
	Reasons    []string            `json:"reasons,omitempty"`
	Judged     results.Judged      `json:"judged"`
	Counts     map[string]*int64   `json:"counts,omitempty"`
	Measures   map[string]*float64 `json:"measures,omitempty"`
	Failovers  []results.Failover  `json:"failovers,omitempty"`
	Uncovered  results.Uncovered   `json:"uncovered,omitempty"`
	Properties []results.Property  `json:"properties,omitempty"`
	Versions   map[string]string   `json:"versions,omitempty"`
	Kept       bool                `json:"kept,omitempty"`
	Fresh      string              `json:"fresh,omitempty"`      // why it started servers of its own
	Timings    map[string]int64    `json:"timings_ms,omitempty"` // of its phases
	Judging    int64               `json:"judging_ms,omitempty"`
	Replay     string              `json:"replay,omitempty"`

	// Note holds what the campaign's reader has added.
	Note json.RawMessage `json:"note,omitempty"`

	// NotMade is the reason why the run was not made; "" if it was made. Such a job may be made when the campaign is
	// resumed, so it is not in the journal.
	NotMade string `json:"-"`
	// Err is the error that ended the run, or why it could not be made. The fields after it are the error of its
	// judging, its whole verdict, and its directory ("" if none). All of them are set only in the process that made
	// the run.
	Err         error          `json:"-"`
	Unjudged    error          `json:"-"`
	Report      results.Report `json:"-"`
	At          string         `json:"-"`
	Interrupted bool           `json:"-"` // it was cut short; only the reader sees it
}

// take copies the fields of a verdict that the journal keeps.
func (r *Result) take(rep results.Report) {
	r.Report = rep
	r.Verdict, r.Reasons, r.Judged, r.Counts, r.Measures, r.Failovers = rep.Verdict, rep.Reasons, rep.Judged,
		rep.Counts, rep.Measures, rep.Failovers
	r.Properties = rep.Properties
	r.Uncovered, r.Versions, r.Kept, r.Replay = rep.Uncovered, rep.Versions, rep.Kept, rep.Replay
	r.Fresh, r.Timings = rep.Fresh, rep.Timings
}
