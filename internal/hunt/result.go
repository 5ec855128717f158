package hunt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/internal/hunt/script"
	"github.com/lockquake/lockquake/results"
)

// Schema is the version of hunt.json's format. File and FileReport are files in the directory of a hunt.
const (
	Schema     = "lockquake/hunt/1"
	File       = "hunt.json"
	FileReport = "hunt.html"
)

// Result is the result of a hunt: hunt.json.
type Result struct {
	Schema string `json:"schema"`
	results.Origin
	Backend  string `json:"backend"`
	Lock     string `json:"lock"`
	Provider string `json:"provider"`

	Seed         uint64   `json:"seed"`
	Random       bool     `json:"random,omitempty"` // every script was drawn
	Goals        []string `json:"goals"`
	Budget       int64    `json:"budget_ms"`
	ShrinkBudget int64    `json:"shrink_budget_ms"`
	Interrupted  bool     `json:"interrupted,omitempty"`

	Runs       int     `json:"runs"` // of the search
	Unknown    int     `json:"unknown"`
	Took       int64   `json:"took_ms"`
	Grants     int64   `json:"grants"` // that were judged
	Behaviours int     `json:"behaviours"`
	LastNew    *Point  `json:"last_new,omitempty"` // the last run that showed a new one
	Curve      []Point `json:"curve"`

	Bit     []behaviour.Bite `json:"bit"`               // faults by kind and role of their targets
	Refused []string         `json:"refused,omitempty"` // what cannot be delivered here, with the reason

	Findings []Finding `json:"findings"`
	Shrunk   *Shrunk   `json:"shrunk,omitempty"`
	Nearest  *Nearest  `json:"nearest,omitempty"` // if nothing was found
}

// Nearest is the script whose run came nearest to a goal.
type Nearest struct {
	Goal   string        `json:"goal"`
	Near   float64       `json:"near"` // 0 to 1
	Script script.Script `json:"script"`
	Run    int           `json:"run"`
}

// Fill sets in the result what is known now.
func (h *Hunt) Fill(r *Result) {
	r.Schema, r.Seed, r.Random = Schema, h.Seed, h.Random
	r.Goals = nil
	for _, g := range h.Goals {
		r.Goals = append(r.Goals, g.Name)
	}
	r.Budget, r.ShrinkBudget = h.Budget.Milliseconds(), h.ShrinkBudget.Milliseconds()
	s := &h.search
	r.Runs, r.Unknown, r.Took, r.Grants = s.runs, s.unknown, s.spent.Milliseconds(), s.grants
	r.Behaviours, r.Curve, r.Bit, r.Findings = len(s.corpus.runs), s.corpus.curve, s.bites, s.found
	if n := len(r.Curve); n > 0 {
		r.LastNew = &r.Curve[n-1]
	}
	r.Shrunk = h.shrink.result()
	if len(r.Findings) == 0 {
		if e, goal, near := h.search.corpus.nearest(h.Goals); goal != "" {
			r.Nearest = &Nearest{Goal: goal, Near: near, Script: e.script, Run: e.run}
		}
	}
}

// HandOut writes the scenario of the shrunk script if it reproduces.
func (h *Hunt) HandOut() error {
	x := h.shrink.result()
	if !x.HandedOut() {
		return nil
	}
	claim := "claim='" + strings.ReplaceAll(claimOf(x), "'", "''") + "'"
	s, err := h.scenario(x.Script, asks(x.Goal), demand(x.Goal, x.Others), claim, "about=["+x.Goal+"]")
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "# Found by lockquake hunt: it reached its goal in %d of %d runs.\n", x.Reached, x.Runs)
	return writeFile(filepath.Join(h.Keep.Dir, x.File), append(text, s.Text...))
}

// claimOf describes in words what a script shows.
func claimOf(x *Shrunk) string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s. It takes %s.", x.Claim, x.Script.Text())), " ")
}

// Write writes the result into the directory of the hunt.
func (r Result) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return results.WriteJSON(filepath.Join(dir, File), r)
}

// Read reads the result in the directory of a hunt.
func Read(dir string) (r Result, err error) {
	file := filepath.Join(dir, File)
	b, err := history.ReadFile(file, history.MostList)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	if r.Schema != Schema {
		return r, fmt.Errorf("%s: its schema is %q, not %s", file, r.Schema, Schema)
	}
	return r, nil
}

// Found reports whether a run of the search reached a goal.
func (r Result) Found(goal string) bool {
	for _, f := range r.Findings {
		if f.Goal == goal {
			return true
		}
	}
	return false
}

// Lacking lists what this machine cannot deliver, a line for each reason. It omits what makes no sense for the
// service on any machine.
func Lacking(refused []script.Refused) []string {
	var reasons []string
	faults := map[string][]string{}
	for _, x := range refused {
		if x.Never {
			continue
		}
		reason, _, _ := strings.Cut(x.Reason, "; ") // of several targets, the first
		if faults[reason] == nil {
			reasons = append(reasons, reason)
		}
		if !slices.Contains(faults[reason], x.Fault) {
			faults[reason] = append(faults[reason], x.Fault)
		}
	}
	for i, reason := range reasons {
		reasons[i] = strings.Join(faults[reason], ", ") + ": " + reason
	}
	return reasons
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
