// Package watch observes what a run's verdict depends on and no client can report: the clocks of processes and of the
// machine, and the sessions of the service.
package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

const (
	// MaxDrift is the largest acceptable error of a measured clock: with more, no interval could be judged.
	MaxDrift = 50 * time.Millisecond
	// measureEvery is the pause between two measurements of a clock. Midway between two, the rate bound of 500 ppm
	// adds 0.5 ms to the error.
	measureEvery = 2 * time.Second
	// measureWithin bounds one measurement. A stopped process does not answer; its measurement is left out.
	measureWithin = time.Second
)

// Measurer compares the clocks that are not the run's: before the load, every few seconds, and after it.
type Measurer struct {
	Dir    *rundir.Dir
	clocks []*measuredClock
	cancel context.CancelFunc // ends the measuring; nil before it began
	going  sync.WaitGroup

	writing sync.Mutex
	file    *os.File // the measurements; nil while there are none
}

// measuredClock is a clock that is not the run's.
type measuredClock struct {
	*wire.RemoteClock
	name    string
	running func() bool // of a process that has a history; nil for an agent
	made    int         // measurements after the first
	missed  int         // those of them without an answer
	stepped bool        // and it was reported
}

// Meet checks the clock of a process that has said hello. If it is not the run's, Meet measures it and registers it
// for later measurements. With always, every clock is taken for another than the run's.
func (m *Measurer) Meet(ctx context.Context, of *Clock, h *wire.Hello, running func() bool, always bool) error {
	shared, err := of.Shared(h)
	if err != nil || shared && !always {
		return err
	}
	c := &measuredClock{RemoteClock: of.RemoteClock, name: of.name, running: running}
	first, err := c.Measure(ctx)
	if err != nil {
		return err
	}
	if first.ErrorNS > int64(MaxDrift) {
		return fmt.Errorf("%s: its clock can only be compared to within %v, which would prove nothing", c.name,
			time.Duration(first.ErrorNS))
	}
	m.clocks = append(m.clocks, c)
	return m.write(first)
}

// Keep measures the clocks every few seconds, including those of the agents that are not the run's.
func (m *Measurer) Keep(ctx context.Context, agents []*wire.RemoteClock) {
	for i, c := range agents {
		if c.Separate() {
			m.clocks = append(m.clocks, &measuredClock{RemoteClock: c, name: fmt.Sprintf("agent %d", i+1)})
		}
	}
	ctx, m.cancel = context.WithCancel(ctx)
	for _, c := range m.clocks {
		m.going.Go(func() {
			for clock.Sleep(ctx, measureEvery) == nil {
				_ = m.measure(ctx, c) // it counts failures
			}
		})
	}
}

// Stop ends the measuring.
func (m *Measurer) Stop() {
	if m.cancel != nil {
		m.cancel()
	}
	m.going.Wait()
}

// measure measures one clock again.
func (m *Measurer) measure(ctx context.Context, c *measuredClock) error {
	within, cancel := context.WithTimeoutCause(ctx, measureWithin, fmt.Errorf("no answer within %v", measureWithin))
	defer cancel()
	one, err := c.Measure(within)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.made++
	if err != nil {
		c.missed++
		m.Dir.Log.Info("a measurement of a clock is omitted", "node", c.name, "reason", err)
		return err
	}
	if why := c.Stepped(); why != "" && !c.stepped {
		c.stepped = true
		m.Dir.Unknown("%s", why)
	}
	if c.running == nil {
		return nil // an agent has no history
	}
	return m.write(one)
}

// Finish measures the clocks a last time, and reports what was left out. A process that has ended gets no last
// measurement.
func (m *Measurer) Finish(ctx context.Context) {
	m.Stop()
	last := make([]error, len(m.clocks))
	var all sync.WaitGroup
	for i, c := range m.clocks {
		if c.running == nil || c.running() {
			all.Go(func() { last[i] = m.measure(ctx, c) })
		}
	}
	all.Wait()
	m.Dir.Change(func(e *results.Env) {
		for i, c := range m.clocks {
			if err := last[i]; err != nil && !errors.Is(err, ErrEnded) {
				e.Warnings = append(e.Warnings,
					fmt.Sprintf("the clock of %s was not measured after the load (%v): from the last measurement on, the error of its times grows by %d ppm",
						c.name, err, 1_000_000/history.RateShare))
			}
			if c.missed > 0 {
				e.Warnings = append(e.Warnings,
					fmt.Sprintf("%d of %d measurements of the clock of %s are missing, because it did not answer within %v: the error of its times is larger there",
						c.missed, c.made, c.name, measureWithin))
			}
		}
	})
}

// write adds a measurement to those that the judge reads.
func (m *Measurer) write(one history.Measurement) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		f, err := os.Create(filepath.Join(m.Dir.HistoryDir(), history.Clocks))
		if err != nil {
			return err
		}
		m.file = f
	}
	line, err := json.Marshal(one)
	if err == nil {
		_, err = m.file.Write(slices.Concat(line, []byte{'\n'}))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", history.Clocks, err)
	}
	return nil
}

// Close closes the file. For a missing measurement, the judge assumes the rate bound.
func (m *Measurer) Close() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return nil
	}
	return m.file.Close()
}
