package main

import (
	"cmp"
	"encoding/json"
	"os"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/longrun"
	"github.com/lockquake/lockquake/results"
)

// The verdicts beside unknown and fail; the judge gives neither broken nor missing.
const (
	passed  = results.Pass
	broken  = "error"   // the program ended without a verdict
	missing = "missing" // the row cannot be run on this machine
)

// Run is one run of a row, a line of the record: what a campaign keeps of it, and the machine and commit. Its job is
// the row.
type Run struct {
	campaign.Result
	Row string `json:"row,omitempty"` // the job, in older lines

	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Load    string    `json:"load"` // load averages of the machine before the run
	Machine string    `json:"machine,omitempty"`
}

// record is a file of runs, one JSON object a line.
type record struct {
	file    *os.File
	runs    map[string][]Run  // by row
	missing map[string]string // by row: why it could not be run when it was last tried
}

// openRecord reads the runs made so far. It removes a last line that was cut off by an interruption.
func openRecord(path string) (rec *record, err error) {
	rec = &record{runs: map[string][]Run{}, missing: map[string]string{}}
	rec.file, err = longrun.OpenRecord(path, rec.take)
	return rec, err
}

func (rec *record) take(run Run) {
	run.Job, run.Row = cmp.Or(run.Job, run.Row), ""
	delete(rec.missing, run.Job)
	if run.Verdict == missing {
		rec.missing[run.Job] = run.Reasons[0]
		return
	}
	rec.runs[run.Job] = append(rec.runs[run.Job], run)
}

// add appends a run to the file.
func (rec *record) add(run Run) error {
	rec.take(run)
	return json.NewEncoder(rec.file).Encode(run)
}
