package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/scenarios"
)

// found is what one run of a scenario showed.
type found struct {
	Verdict  string              `json:"verdict"`
	Reasons  []string            `json:"reasons,omitempty"`
	Provider string              `json:"provider"`
	Seed     uint64              `json:"seed"`
	Replay   string              `json:"replay"`
	Made     string              `json:"made"`   // version of lockquake
	Began    string              `json:"began"`  // date
	Grants   int64               `json:"grants"` // judged, or what Of says
	Of       string              `json:"of,omitempty"`
	Counts   map[string]int64    `json:"counts"` // those that are above zero, and those that are expected
	Measures map[string]*float64 `json:"measures,omitempty"`
	Versions map[string]string   `json:"versions,omitempty"` // of the servers
	Words    []string            `json:"words,omitempty"`    // the explanation
}

// shown are the counts that a page shows when they are above zero; the others are in the small print of a report.
var shown = []string{
	"double_grants", "overlapping_holds", "stale_writes", "fence_saves", "lost_updates", "lost_elements", "units_oversold", "double_bookings",
	"token_regressions", "foreign_releases", "stuck_locks", "acknowledged_writes_lost", "false_results", "orphans",
}

// shownUnderLoad are the measures that a page shows of a story under load, where the run has them. A story by steps
// takes as long as its steps, and shows only the measures that it expects.
var shownUnderLoad = []string{"unavailability_ms_max", "wakeups_per_handoff", "requests_per_handoff", "handoff_p50_ms"}

// read judges a run directory and takes what the pages show of it.
func read(dir string) (name string, f found, svg []byte, err error) {
	r, err := results.Judge(dir, checkers.All())
	if err != nil {
		return "", f, nil, err
	}
	env, err := results.ReadEnv(dir)
	if err != nil {
		return "", f, nil, err
	}
	f = found{
		Verdict: string(r.Verdict), Reasons: r.Reasons, Provider: r.Provider, Seed: r.Seed, Replay: r.Replay, Made: env.Version,
		Counts: map[string]int64{}, Measures: map[string]*float64{}, Versions: map[string]string{},
	}
	f.Grants, f.Of = r.Subject()
	f.Began, _, _ = strings.Cut(env.Started, "T")
	for name, v := range env.Service {
		if strings.HasSuffix(name, "version") {
			f.Versions[name] = v
		}
	}
	for _, name := range shown {
		if n := r.Counts[name]; n != nil && *n > 0 {
			f.Counts[name] = *n
		}
	}
	if len(env.People) == 0 { // no steps name anybody
		for _, name := range shownUnderLoad {
			if m := r.Measures[name]; m != nil {
				f.Measures[name] = m
			}
		}
	}
	for _, e := range r.Expectations {
		if n := r.Counts[e.Name]; n != nil && !e.Default {
			f.Counts[e.Name] = *n
		}
		if m, ok := r.Measures[e.Name]; ok {
			f.Measures[e.Name] = m
		}
	}
	var words bytes.Buffer
	if err := report.Explain(&words, dir, r); err != nil {
		return "", f, nil, err
	}
	f.Words = strings.Split(strings.TrimRight(words.String(), "\n"), "\n")
	svg, err = report.Picture(dir, r)
	return r.Scenario, f, svg, err
}

// story is a story with its twins, and what runs of them showed.
type story struct {
	scenarios.Scenario
	Twins []scenarios.Scenario
	Found map[string]found // by name
}

// stories lists all stories with what is kept in dir of them.
func stories(dir string) ([]*story, error) {
	var out []*story
	for _, l := range scenarios.Names() {
		if !strings.HasPrefix(l.File, "stories/") {
			continue
		}
		one, err := scenarios.Load(l.Path)
		if err != nil || len(one) != 1 {
			return nil, fmt.Errorf("%s: %d scenarios: %w", l.Path, len(one), err)
		}
		if l.Path+".yaml" != l.File {
			last := out[len(out)-1]
			last.Twins = append(last.Twins, one[0])
			continue
		}
		s := &story{Scenario: one[0], Found: map[string]found{}}
		b, err := os.ReadFile(filepath.Join(dir, l.Name+".json"))
		if err == nil {
			err = json.Unmarshal(b, &s.Found)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s.json: %w", l.Name, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// forms are the story itself and its twins.
func (s *story) forms() []scenarios.Scenario {
	return append([]scenarios.Scenario{s.Scenario}, s.Twins...)
}

// take adds what a run of the story, or of a twin, showed; ok is false where the run is of another.
func (s *story) take(name string, f found) (ok bool) {
	for _, one := range s.forms() {
		if one.Name == name {
			if name != s.Name {
				f.Words = nil // its story is shown by a table
			}
			s.Found[name] = f
			return true
		}
	}
	return false
}

// keep writes what is known of the story, without what scenarios that are gone had shown.
func (s *story) keep(dir string) error {
	forms := s.forms()
	maps.DeleteFunc(s.Found, func(name string, _ found) bool {
		return !slices.ContainsFunc(forms, func(form scenarios.Scenario) bool { return form.Name == name })
	})
	if len(s.Found) == 0 {
		return nil
	}
	b, err := json.MarshalIndent(s.Found, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.Name+".json"), append(b, '\n'), 0o644)
}
