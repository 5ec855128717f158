// Package rundir is what a run writes into its directory while it is under way: the facts about the run as a whole,
// its faults, the engine's own history, and the answers of the service.
package rundir

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// Dir is the directory of a run, with the facts about the run as a whole for env.json. Every part of the run adds to
// it.
type Dir struct {
	Path string // of the run
	Log  *slog.Logger

	mu  sync.Mutex
	Env results.Env
}

// Create creates the run directory with the scenario in it.
func (r *Dir) Create(s scenarios.Scenario) error {
	for _, d := range []string{results.DirHistory, results.DirLogs} {
		if err := os.MkdirAll(filepath.Join(r.Path, d), 0o755); err != nil {
			return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
		}
	}
	for name, text := range map[string][]byte{results.FileScenario: s.Text, results.FileFaults: nil} {
		if err := results.WriteAtomically(filepath.Join(r.Path, name), text); err != nil {
			return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
		}
	}
	return nil
}

// Link makes the run the latest of its scenario.
func (r *Dir) Link() {
	link := filepath.Join(filepath.Dir(r.Path), "latest")
	_ = os.Remove(link)
	// The link is a convenience: a file system without links must not stop the run.
	if err := os.Symlink(filepath.Base(r.Path), link); err != nil {
		r.Log.Debug("no latest link", "error", err)
	}
}

// LogDir returns the folder for the nodes' output.
func (r *Dir) LogDir() string { return filepath.Join(r.Path, results.DirLogs) }

// HistoryDir returns the folder for the histories.
func (r *Dir) HistoryDir() string { return filepath.Join(r.Path, results.DirHistory) }

// Change changes the facts under the lock.
func (r *Dir) Change(how func(*results.Env)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(&r.Env)
}

// Start returns when the load began, or 0.
func (r *Dir) Start() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Env.Start
}

// Timing runs a phase or a part of one, and records how long it took.
func (r *Dir) Timing(what string, f func() error) error {
	start := clock.Now()
	err := f()
	took := clock.Now() - start
	r.Change(func(e *results.Env) { e.Timings[what] += took / int64(time.Millisecond) })
	return err
}

// Unknown adds a reason why this run cannot pass.
func (r *Dir) Unknown(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	r.Env.Unknown = append(r.Env.Unknown, text)
	r.Log.Warn("this run cannot pass", "reason", text)
}

// Write writes env.json with what is known now.
func (r *Dir) Write() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return results.WriteJSON(filepath.Join(r.Path, results.FileEnv), r.Env)
}
