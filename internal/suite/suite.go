// Package suite runs many locks through many stories: it reads a suite file, makes the cells, plans their runs for a
// campaign, and prints the results.
package suite

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/stories/ask"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// Schema is the version of suite.json's format. The others are files in the directory of a suite: the suite itself,
// and the reports for CI systems.
const (
	Schema       = "lockquake/suite/1"
	File         = "suite.json"
	FileJUnit    = "junit.xml"
	FileMarkdown = "summary.md"
)

// Result is a suite with the results so far.
type Result struct {
	Schema string `json:"schema"`
	results.Origin
	Repeat      int    `json:"repeat"`
	Interrupted bool   `json:"interrupted"`
	Cells       []Cell `json:"cells"`
}

// Cell is one lock with one story.
type Cell struct {
	Lock     string `json:"lock"`  // as backend/lock, or the row's own name
	Story    string `json:"story"` // its name in the suite
	Claim    string `json:"claim"`
	Estimate int64  `json:"estimate_ms"` // estimated time of one run
	// About is the number of grants the story is about; 0: it is not about a number.
	About int64 `json:"about_grants,omitempty"`
	// Apart is the reason why the story does not apply to the lock. NotRun is the reason why runs are missing.
	Apart  string `json:"does_not_apply,omitempty"`
	NotRun string `json:"not_run,omitempty"`
	// Missing says that this machine lacks something it needs.
	Missing bool  `json:"missing,omitempty"`
	Runs    []Run `json:"runs,omitempty"`

	Scenario scenarios.Scenario `json:"-"`
	Text     string             `json:"scenario,omitempty"` // its YAML, in listings before any run
	// Foreign says that the clients are external programs, which may not support what the story needs. Hellos are
	// their hellos.
	Foreign  bool          `json:"-"`
	Hellos   []*wire.Hello `json:"-"`
	topology string        // cells of one topology share servers
	turn     int           // stories come in turn: the first of every lock before the second of any
}

// Name identifies the cell, for people too.
func (c Cell) Name() string { return c.Lock + ", " + c.Story }

// Run is one run of a cell.
type Run struct {
	Dir     string          `json:"dir"` // relative to the suite's; "": it left none
	Verdict results.Verdict `json:"verdict"`
	Seed    uint64          `json:"seed"`
	Grants  int64           `json:"grants"` // that were judged
	Took    int64           `json:"took_ms"`
	Reasons []string        `json:"reasons,omitempty"` // why it did not pass
	// Uncovered holds counts of trouble that the story does not name, as in the run's verdict.
	Uncovered results.Uncovered `json:"uncovered,omitempty"`
	// Properties hold what the run shows of the lock, as in the run's verdict.
	Properties []results.Property `json:"properties,omitempty"`
	// Cost holds the compared measures of cost, by name.
	Cost   map[string]float64 `json:"cost,omitempty"`
	Replay string             `json:"replay,omitempty"`
}

// State is the outcome of a cell.
type State string

// The states. One red run makes a cell red, however many are green: a flaky cell is red.
const (
	Green   State = "green"
	Red     State = "red"
	Unknown State = "unknown"
	NotRun  State = "not run"
	Apart   State = "does not apply"
)

// State returns the state of the cell.
func (c Cell) State() State {
	switch {
	case c.Apart != "":
		return Apart
	case c.count(results.Fail) > 0:
		return Red
	case c.count(results.Unknown) > 0:
		return Unknown
	case len(c.Runs) > 0:
		return Green
	}
	return NotRun
}

func (c Cell) count(v results.Verdict) (n int) {
	for _, r := range c.Runs {
		if r.Verdict == v {
			n++
		}
	}
	return n
}

// word returns the state for a table; for a cell with several runs, also how many of them are in that state.
func (c Cell) word() string {
	state, n := c.State(), 0
	switch state {
	case Red:
		n = c.count(results.Fail)
	case Unknown:
		n = c.count(results.Unknown)
	case Green:
		n = len(c.Runs)
	case Apart:
		return "-"
	}
	if len(c.Runs) > 1 {
		return fmt.Sprintf("%s %d of %d", state, n, len(c.Runs))
	}
	return string(state)
}

// short says what a green cell is worth that had fewer grants than its story is about. It is "" if the cell had
// enough, or is not green.
func (c Cell) short() string {
	if c.State() != Green {
		return ""
	}
	least := slices.MinFunc(c.Runs, func(a, b Run) int { return cmp.Compare(a.Grants, b.Grants) })
	return ask.Short(least.Grants, c.About)
}

// uncovered returns the counts of trouble in a green cell that its story does not name. It is "" if there are none,
// or the cell is not green.
func (c Cell) uncovered() string {
	all := results.Uncovered{}
	for _, r := range c.Runs {
		all.Add(r.Uncovered)
	}
	if c.State() != Green || len(all) == 0 {
		return ""
	}
	return "also found, without an expectation in the story: " + all.String()
}

// warning says why a green cell is worth less than it looks; "" if nothing reduces it, or the cell is not green.
func (c Cell) warning() string {
	return strings.Join(slices.DeleteFunc([]string{c.short(), c.uncovered()}, func(s string) bool { return s == "" }),
		"; ")
}

// reason returns why a cell is not green: the reasons of the first run of its state, why the story does not apply, or
// why it was not run. For a green cell it returns the warning.
func (c Cell) reason() string {
	if warning := c.warning(); warning != "" {
		return warning
	}
	want := map[State]results.Verdict{Red: results.Fail, Unknown: results.Unknown}[c.State()]
	for _, r := range c.Runs {
		if r.Verdict == want && len(r.Reasons) > 0 {
			return strings.Join(r.Reasons, "; ")
		}
	}
	if c.Apart != "" {
		return c.Apart
	}
	return c.NotRun
}

// shown returns the directory of the run that explains the state, or "".
func (c Cell) shown() string {
	want := map[State]results.Verdict{Red: results.Fail, Unknown: results.Unknown}[c.State()]
	for _, r := range c.Runs {
		if r.Verdict == want {
			return r.Dir
		}
	}
	return ""
}

// Takes estimates the time of the runs still to be made; start is the time in which the servers of a topology start.
func Takes(cells []Cell, repeat int, start time.Duration) time.Duration {
	var out time.Duration
	topologies := map[string]bool{}
	for _, c := range cells {
		left := repeat - len(c.Runs)
		if c.Apart != "" || c.NotRun != "" || left <= 0 {
			continue
		}
		out += time.Duration(left) * time.Duration(c.Estimate) * time.Millisecond
		if !topologies[c.topology] {
			topologies[c.topology] = true
			out += start
		}
	}
	return out
}

// Fit marks as not run the stories above a lock's maximum, and those that do not fit into the budget; 0 is unlimited.
// The first stories of all locks come before the second of any. Cells that do not apply or cannot be run here do not
// count.
func Fit(cells []Cell, most, repeat int, budget, start time.Duration) {
	turns := map[string]int{}
	for i := range cells {
		c := &cells[i]
		if c.Apart != "" || c.NotRun != "" {
			continue
		}
		c.turn = turns[c.Lock]
		if turns[c.Lock]++; most > 0 && c.turn >= most {
			c.NotRun = fmt.Sprintf("--most allows %d stories per lock", most)
		}
	}
	if budget <= 0 {
		return
	}
	order := make([]int, 0, len(cells))
	for i := range cells {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cells[a].turn - cells[b].turn })
	var taken []Cell
	for _, i := range order {
		if Takes(append(taken[:len(taken):len(taken)], cells[i]), repeat, start) > budget {
			cells[i].NotRun = fmt.Sprintf("the budget of %v", budget)
			continue
		}
		taken = append(taken, cells[i])
	}
}

func (r Result) find(c Cell) *Cell {
	i := slices.IndexFunc(r.Cells, func(o Cell) bool { return o.Lock == c.Lock && o.Story == c.Story })
	if i < 0 {
		return nil
	}
	return &r.Cells[i]
}

// Read reads the suite in a directory.
func Read(dir string) (r Result, err error) {
	b, err := history.ReadFile(filepath.Join(dir, File), history.MostList)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", filepath.Join(dir, File), err)
	}
	if r.Schema != Schema {
		return r, fmt.Errorf("%s: its schema is %q, not %s", filepath.Join(dir, File), r.Schema, Schema)
	}
	return r, nil
}

// Write writes the suite into its directory, which it creates.
func (r Result) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return results.WriteJSON(filepath.Join(dir, File), r)
}

// WriteReports writes the suite into its directory as JUnit XML and as Markdown. With a comparison, both report
// regressions.
func (r Result) WriteReports(dir string, with *Comparison) error {
	var xml, text bytes.Buffer
	err := errors.Join(r.JUnit(&xml, with), r.Markdown(&text))
	if err == nil && with != nil {
		fmt.Fprint(&text, "\n```\n")
		err = with.Text(&text)
		fmt.Fprint(&text, "```\n")
	}
	if err != nil {
		return err
	}
	return errors.Join(results.WriteAtomically(filepath.Join(dir, FileJUnit), xml.Bytes()),
		results.WriteAtomically(filepath.Join(dir, FileMarkdown), text.Bytes()))
}

// Sums holds the number of cells by outcome.
type Sums struct {
	Green, Red, Unknown, NotRun, Apart int
	Missing                            int // of those not run: this machine lacks something
}

// Sums counts the cells.
func (r Result) Sums() (s Sums) {
	for _, c := range r.Cells {
		switch c.State() {
		case Green:
			s.Green++
		case Red:
			s.Red++
		case Unknown:
			s.Unknown++
		case NotRun:
			s.NotRun++
			if c.Missing {
				s.Missing++
			}
		case Apart:
			s.Apart++
		}
	}
	return s
}

func (s Sums) String() string {
	return fmt.Sprintf("%d green, %d red, %d unknown, %d not run, %d do not apply", s.Green, s.Red, s.Unknown, s.NotRun,
		s.Apart)
}
