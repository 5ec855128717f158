package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/hunt"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/internal/longrun"
	"github.com/lockquake/lockquake/results"
)

// Hunt is one hunt: a line of the record.
type Hunt struct {
	Target string `json:"target"`
	Seed   int    `json:"seed"`
	Random bool   `json:"random,omitempty"`
	Budget int64  `json:"budget_ms"`

	Found *int64 `json:"found_ms,omitempty"` // time of the search until then; nil: not found within the budget
	Runs  int    `json:"runs"`               // of the search
	// Grants were judged, and Behaviours seen.
	Grants     int64 `json:"grants"`
	Behaviours int   `json:"behaviours"`

	// Size is the size of the script that was handed out. It reached the goal in Reached of Tries fresh runs. nil: no
	// script was asked for, or none reproduced.
	Size    *script.Size `json:"size,omitempty"`
	File    string       `json:"file,omitempty"`
	Reached int          `json:"reached,omitempty"`
	Tries   int          `json:"tries,omitempty"`
	Good    *int         `json:"good,omitempty"` // in how many of ten runs it reached the goal on the good version

	Commit string    `json:"commit"`
	Date   time.Time `json:"date"`
	Load   string    `json:"load"` // averages of the machine before it
}

// take reads the output of a hunt whose directory is in out.
func (h *Hunt) take(printed []byte, goal, out string) error {
	var r hunt.Result
	if err := json.Unmarshal(printed, &r); err != nil {
		return fmt.Errorf("output of the hunt: %w", err)
	}
	h.Runs, h.Grants, h.Behaviours = r.Runs, r.Grants, r.Behaviours
	for _, f := range r.Findings {
		if f.Goal == goal && h.Found == nil {
			h.Found = new(f.At)
		}
	}
	x := r.Shrunk
	if !x.HandedOut() {
		return nil
	}
	h.Size, h.Reached, h.Tries = &x.Size, x.Reached, x.Runs
	files, err := filepath.Glob(filepath.Join(out, "hunt-*", x.File))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("the script %s is not below %s: %w", x.File, out, cmp.Or(err, fs.ErrNotExist))
	}
	h.File = files[len(files)-1] // the names begin with the time
	return nil
}

// reached returns in how many verdicts, as `run --format json` prints them, a count is above zero.
func reached(printed []byte, count string) (*int, error) {
	n := 0
	for d := json.NewDecoder(bytes.NewReader(printed)); ; {
		var r results.Report
		switch err := d.Decode(&r); {
		case errors.Is(err, io.EOF):
			return &n, nil
		case err != nil:
			return nil, err
		}
		if c := r.Counts[count]; c != nil && *c > 0 {
			n++
		}
	}
}

// record is a file of hunts, one JSON object a line.
type record struct {
	file *os.File

	mu    sync.Mutex
	hunts []Hunt
}

// openRecord reads the hunts made so far.
func openRecord(path string) (rec *record, err error) {
	rec = &record{}
	rec.file, err = longrun.OpenRecord(path, func(h Hunt) { rec.hunts = append(rec.hunts, h) })
	return rec, err
}

// add appends a hunt to the file.
func (rec *record) add(h Hunt) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.hunts = append(rec.hunts, h)
	return json.NewEncoder(rec.file).Encode(h)
}

// of returns the hunts for a target.
func (rec *record) of(t Target) (out []Hunt) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for _, h := range rec.hunts {
		if h.Target == t.Name {
			out = append(out, h)
		}
	}
	return out
}

func (rec *record) has(t Target, seed int, random bool) bool {
	for _, h := range rec.of(t) {
		if h.Seed == seed && h.Random == random {
			return true
		}
	}
	return false
}
