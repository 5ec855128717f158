package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lockquake/lockquake/internal/campaign"
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
func openRecord(path string) (*record, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	rec := &record{file: f, runs: map[string][]Run{}, missing: map[string]string{}}
	for d := json.NewDecoder(f); ; {
		var run Run
		err := d.Decode(&run)
		switch {
		case errors.Is(err, io.EOF):
			return rec, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			if err := f.Truncate(d.InputOffset()); err != nil {
				return nil, err
			}
			_, err = f.WriteString("\n") // the end of the line before
			return rec, err
		case err != nil:
			return nil, fmt.Errorf("%s, at byte %d: %w", path, d.InputOffset(), errors.Join(err, f.Close()))
		}
		rec.take(run)
	}
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
