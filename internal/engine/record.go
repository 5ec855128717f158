package engine

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

// record is what is known of the run as a whole, for env.json. Every part of the run adds to it.
type record struct {
	dir string // of the run
	log *slog.Logger

	mu  sync.Mutex
	env results.Env
}

// create makes the run directory with the scenario in it.
func (r *record) create(s scenarios.Scenario) error {
	for _, d := range []string{results.DirHistory, results.DirLogs} {
		if err := os.MkdirAll(filepath.Join(r.dir, d), 0o755); err != nil {
			return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
		}
	}
	for name, text := range map[string][]byte{results.FileScenario: s.Text, results.FileFaults: nil} {
		if err := results.WriteAtomically(filepath.Join(r.dir, name), text); err != nil {
			return plan.MissingError{Text: fmt.Sprintf("run directory: %v", err)}
		}
	}
	return nil
}

// link makes the run the latest of its scenario.
func (r *record) link() {
	link := filepath.Join(filepath.Dir(r.dir), "latest")
	_ = os.Remove(link)
	// A convenience: a file system without links must not stop the run.
	if err := os.Symlink(filepath.Base(r.dir), link); err != nil {
		r.log.Debug("no latest link", "error", err)
	}
}

func (r *record) logDir() string { return filepath.Join(r.dir, results.DirLogs) }

func (r *record) historyDir() string { return filepath.Join(r.dir, results.DirHistory) }

// change alters what is known.
func (r *record) change(how func(*results.Env)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how(&r.env)
}

// start returns when the load began, or 0.
func (r *record) start() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.env.Start
}

// timing runs a phase or a part of one, and notes how long it took.
func (r *record) timing(what string, f func() error) error {
	start := clock.Now()
	err := f()
	took := clock.Now() - start
	r.change(func(e *results.Env) { e.Timings[what] += took / int64(time.Millisecond) })
	return err
}

// unknown notes a reason why this run cannot pass.
func (r *record) unknown(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	r.env.Unknown = append(r.env.Unknown, text)
	r.log.Warn("this run cannot pass", "reason", text)
}

// write writes env.json as it is known now.
func (r *record) write() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return results.WriteJSON(filepath.Join(r.dir, results.FileEnv), r.env)
}
