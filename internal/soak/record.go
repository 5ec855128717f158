package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lockquake/lockquake/results"
)

// The verdicts beside unknown and fail; broken and missing are none of the judge's.
const (
	passed  = results.Pass
	broken  = "error"   // the program ended without one
	missing = "missing" // the row cannot be run on this machine
)

// Run is one run of a row, a line of the record: what is kept of its verdict.json, and how it was made.
type Run struct {
	Row       string              `json:"row"`
	Dir       string              `json:"run_dir,omitempty"`
	Verdict   results.Verdict     `json:"verdict"`
	Reasons   []string            `json:"reasons,omitempty"`
	Judged    results.Judged      `json:"judged"`
	Counts    map[string]*int64   `json:"counts,omitempty"`
	Measures  map[string]*float64 `json:"measures,omitempty"`
	Failovers []results.Failover  `json:"failovers,omitempty"`
	Versions  map[string]string   `json:"versions,omitempty"` // of the service and the libraries
	Kept      bool                `json:"kept,omitempty"`

	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Load    string    `json:"load"` // averages of the machine before the run
	Machine string    `json:"machine,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`
}

// record is a file of runs, one JSON object a line.
type record struct {
	file    *os.File
	runs    map[string][]Run  // by row
	missing map[string]string // by row: why it could not be run when it was last tried
}

// openRecord reads the runs made so far. A last line that an interruption cut off is removed.
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
	delete(rec.missing, run.Row)
	if run.Verdict == missing {
		rec.missing[run.Row] = run.Reasons[0]
		return
	}
	rec.runs[run.Row] = append(rec.runs[run.Row], run)
}

// add appends a run to the file.
func (rec *record) add(run Run) error {
	rec.take(run)
	return json.NewEncoder(rec.file).Encode(run)
}
