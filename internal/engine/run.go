package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// run is one run under way.
type run struct {
	options Options
	plan    *Plan
	within  deadlines
	log     *slog.Logger
	id      string
	dir     string

	cluster  *cluster.Cluster
	service  backends.Service
	sessions []*session // clients by index, then the resource if there is one
	live     *live
	vigil    *vigil       // nil where grants do not stand as long as a session
	heals    *chaos.Stack // of the faults
	stops    *chaos.Stack // of the stops that aim at a holder
	lanes    chaos.Lanes  // which link faults stand where
	own      *journal     // the engine's own history: deaths and the final read
	seen     *sightings   // what the service said when steps asked it
	wall     *clockWatch  // nil before the load

	mu       sync.Mutex
	env      results.Env
	faults   []*history.Fault
	injected []injection           // what each of them was, by the same index
	counted  map[int]chaos.Counted // by a fault's id: what counts its packets
	read     lastRead              // by the steps alone, which are taken one after another
	leads    map[int]*chaos.Lead   // by a fault's id: what follows the lead since
	standing map[int]chaos.Reach   // by a fault's id: whom the schedule's injections hit that stand
	doomed   []string              // clients whose user is to die at a point
	phase    string                // the one under way
	// injecting counts the injections under way, so that the end of the load waits for them.
	injecting sync.WaitGroup
	deaths    sync.WaitGroup // watchers that may still write into the engine's history
	leading   sync.WaitGroup // waits for news of the lead after a heal
	over      chan struct{}  // closed when no stream is waited for any more
	// steering lasts as long as the steps; asking counts what is asked on their account beside them.
	steering context.Context
	asking   sync.WaitGroup
}

// Run carries out a scenario and returns the directory it left. The directory holds all that could be recorded, also
// beside an error; it is "" when nothing was started. When ctx ends, faults are healed and nodes torn down first.
func Run(ctx context.Context, o Options) (dir string, err error) {
	if o.Began == 0 {
		o.Began = clock.Now()
	}
	p, err := Check(o)
	if err != nil {
		return "", err
	}
	r := newRun(o, p)
	if len(p.namesOf(cluster.Server)) == 0 {
		r.options.Ground = nil
	}
	if err := r.prepare(); err != nil {
		return "", err
	}
	return r.dir, r.do(ctx)
}

func newRun(o Options, p *Plan) *run {
	return &run{
		options: o, plan: p, within: generous, log: o.Log, live: newLive(), heals: chaos.NewStack(), stops: chaos.NewStack(), counted: map[int]chaos.Counted{},
		leads: map[int]*chaos.Lead{}, standing: map[int]chaos.Reach{}, read: lastRead{}, seen: newSightings(), steering: context.Background(),
		over: make(chan struct{}), id: newID(),
	}
}

// do goes through the phases. Whatever happened, it heals, tears down and writes what is known.
func (r *run) do(ctx context.Context) (err error) {
	defer func() {
		if ctx.Err() != nil {
			r.interrupted()
		}
		err = errors.Join(err, r.finish(ctx))
	}()
	if err := r.timed(results.TimeUp, func() error { return r.up(ctx) }); err != nil {
		if ctx.Err() != nil {
			return nil // interrupted while starting: finish says so
		}
		return MissingError{Text: err.Error()}
	}
	defer r.keepVigil(ctx)()
	pulse := r.watchSelf()
	defer pulse.Stop() // before finish closes the engine's history
	r.takeReading(ctx)
	loadErr := r.timed(results.TimeLoad, func() error { return r.load(ctx) })
	if loadErr != nil && ctx.Err() == nil {
		r.unknown("%v", loadErr)
	}
	_ = r.timed(results.TimeHeal, func() error { r.heal(ctx); return nil })
	_ = r.timed(results.TimeSettle, func() error { r.settle(ctx); return nil })
	return nil
}

// watchSelf records when the engine itself does not run: it would then inject and heal late. At every beat it looks at the machine's clocks.
func (r *run) watchSelf() *wire.Pulse {
	r.wall = newClockWatch(clock.Read)
	return wire.Watch(func(gap int64) {
		r.own.add(history.Event{Kind: history.Stall, Phase: history.Info, Value: gap})
	}, r.wall.look)
}

// prepare makes the run directory with the scenario in it.
func (r *run) prepare() error {
	s := r.plan.scenario
	name := r.options.Started.UTC().Format("20060102T150405.000") + "-" + strconv.FormatUint(s.Run.Seed, 10)
	parent := filepath.Join(r.options.Out, s.Name)
	r.dir = filepath.Join(parent, name)
	for _, d := range []string{results.DirHistory, results.DirLogs} {
		if err := os.MkdirAll(filepath.Join(r.dir, d), 0o755); err != nil {
			return MissingError{Text: fmt.Sprintf("run directory: %v", err)}
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, results.FileScenario), s.Text, 0o644); err != nil {
		return MissingError{Text: fmt.Sprintf("run directory: %v", err)}
	}
	if err := os.WriteFile(filepath.Join(r.dir, results.FileFaults), nil, 0o644); err != nil {
		return MissingError{Text: fmt.Sprintf("run directory: %v", err)}
	}
	if len(r.plan.schedule) > 0 {
		if err := r.writeDrawn(); err != nil {
			return err
		}
	}
	link := filepath.Join(parent, "latest")
	_ = os.Remove(link) // a convenience: a file system without links must not stop the run
	if err := os.Symlink(name, link); err != nil {
		r.log.Debug("no latest link", "error", err)
	}
	j, err := openJournal(filepath.Join(r.historyDir(), "engine.lqh"), r.plan.locks)
	if err != nil {
		return MissingError{Text: fmt.Sprintf("run directory: %v", err)}
	}
	r.own = j
	r.describe()
	return r.writeEnv()
}

// name is that of the run's directory.
func (r *run) name() string { return filepath.Base(r.dir) }

func (r *run) logDir() string { return filepath.Join(r.dir, results.DirLogs) }

func (r *run) historyDir() string { return filepath.Join(r.dir, results.DirHistory) }

// timed runs one phase and notes how long it took.
func (r *run) timed(phase string, f func() error) error {
	r.mu.Lock()
	r.phase = phase
	r.mu.Unlock()
	r.progress("")
	start := clock.Now()
	err := f()
	r.took(phase, clock.Now()-start)
	return err
}

// took notes that something took so many ns.
func (r *run) took(what string, ns int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env.Timings[what] += ns / int64(time.Millisecond)
}

// timing runs a part of a phase and notes how long it took.
func (r *run) timing(what string, f func() error) error {
	start := clock.Now()
	err := f()
	r.took(what, clock.Now()-start)
	return err
}

// unknown notes a reason why this run cannot pass.
func (r *run) unknown(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	r.env.Unknown = append(r.env.Unknown, text)
	r.log.Warn("this run cannot pass", "reason", text)
}

func (r *run) progress(text string) {
	if r.options.Progress == nil {
		return
	}
	p := Progress{Total: r.plan.load(), Grants: r.live.granted(), Text: text}
	r.mu.Lock()
	p.Phase, p.Faults = r.phase, len(r.faults)
	if r.env.Start != 0 {
		p.Elapsed = time.Duration(clock.Now() - r.env.Start)
	}
	r.mu.Unlock()
	r.options.Progress(p)
}

// interrupted notes that a signal cut the run short: what was there is judged.
func (r *run) interrupted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.env.Interrupted = true
}

// writeEnv writes env.json as it is known now.
func (r *run) writeEnv() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, err := json.MarshalIndent(r.env, "", "  ")
	if err != nil {
		return fmt.Errorf("env.json: %w", err)
	}
	return os.WriteFile(filepath.Join(r.dir, results.FileEnv), append(b, '\n'), 0o644)
}
