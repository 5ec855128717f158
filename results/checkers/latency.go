// Latency: how long the operations took, in the whole run and before, during and after each fault.
//
//   - acquire: from an acquire's invoke (in an open loop: from its intended start) to ok
//   - hold: from there to release invoke, loss or death
//   - release: from its invoke to ok
//   - handoff: from one holder's release invoke to the next acquire ok on that lock. The holder must still be
//     entitled; otherwise the lock was free, or another's, before. A user must have asked before the release;
//     otherwise it includes the time in which the lock was not wanted.
//
// An operation belongs to the first fault that was active while it lasted: the wait through a fault is the fault's.
// Without one, it belongs to the stretch of the run in which it began.
//
// If the run had a warm-up, operations count that began after it and before the load was over.
//
// It judges nothing. It cannot see operations that never ended, or failed: they have no latency.

package checkers

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers/users"
)

// The operations that are timed, in the order of a lock's life.
const (
	opAcquire = iota
	opHold
	opRelease
	opHandoff
	opCount
)

const (
	// manyStretches is the number from which histograms keep two digits instead of three: they cost 190 kB each.
	manyStretches = 64
	// mostPhased is the maximum number of faults that cut the run into stretches: a histogram of two digits costs 26
	// kB.
	mostPhased = 128
)

// stretch is a part of the run between two moments at which a fault began or ended.
type stretch struct {
	span
	fault bool                             // a fault stands in it
	ops   [opCount]*hdrhistogram.Histogram // nil while empty
}

type latency struct {
	run       results.Run
	digits    int
	asks      *asks
	stretches []stretch
	users     users.Table[timing]
	handoff   []int64 // by lock: the release invoke without a following acquire; 0 for none
}

type timing struct {
	acquire, release uint32 // Op
	asked, gave      int64
}

// latencyMeasures returns the quantiles of each operation.
func latencyMeasures() []results.Quantity {
	docs := [opCount]string{
		"from an acquire's invoke (in an open loop: from its intended start) to the grant",
		"from the grant to the start of the release, the loss or the death",
		"from a release's invoke to its answer",
		"from one holder's release to the next one's grant, if the next holder had asked before the release",
	}
	var all []results.Quantity
	for op, name := range results.Operations {
		for _, q := range []struct{ name, doc string }{
			{"p50", "median"},
			{"p90", "90th percentile"},
			{"p95", "95th percentile"},
			{"p99", "99th percentile"},
			{"p999", "99.9th percentile"},
			{"max", "maximum"},
		} {
			all = append(all, results.Quantity{Name: name + "_" + q.name + "_ms", Doc: q.doc + ", " + docs[op]})
		}
	}
	return all
}

var latencyKind = results.CheckerKind{
	Name: "latency", New: newLatency, Follows: holdsOnce, Grants: true,
	Doc:      "The durations of acquire, hold, release and handoff, over the whole run and before, during and after each fault.",
	Measures: latencyMeasures(),
}

func newLatency(run results.Run) results.Checker {
	c := &latency{run: run, digits: 3, handoff: make([]int64, len(run.Locks))}
	c.asks = newAsks(run, c, false)
	var cuts []int64
	for _, f := range run.Faults[:min(len(run.Faults), mostPhased)] {
		cuts = append(cuts, f.Start)
		if f.End != 0 {
			cuts = append(cuts, f.End)
		}
	}
	slices.Sort(cuts)
	from := run.Start
	for _, t := range slices.Compact(cuts) {
		if t > from {
			c.stretches = append(c.stretches, stretch{span: span{from, t}})
			from = t
		}
	}
	c.stretches = append(c.stretches, stretch{span: span{from, results.Forever}})
	for i := range c.stretches {
		c.stretches[i].fault = slices.ContainsFunc(run.Faults, func(f history.Fault) bool {
			return f.Start <= c.stretches[i].from && (f.End == 0 || f.End > c.stretches[i].from)
		})
	}
	if len(c.stretches) > manyStretches {
		c.digits = 2
	}
	return c
}

// Observe takes the next event.
func (c *latency) Observe(e *history.Event) {
	switch e.Kind {
	case history.Acquire:
		u := c.users.At(e.User)
		if e.Phase == history.Invoke {
			u.acquire, u.asked = e.Op, e.Time
			if e.Value != 0 {
				u.asked = e.Value
			}
		} else if e.Phase == history.Ok && u.acquire == e.Op {
			c.record(opAcquire, u.asked, e.Time)
		}
	case history.Release:
		u := c.users.At(e.User)
		if e.Phase == history.Invoke {
			u.release, u.gave = e.Op, e.Time
		} else if e.Phase == history.Ok && u.release == e.Op {
			c.record(opRelease, u.gave, e.Time)
		}
	default:
	}
	c.asks.observe(e)
}

func (c *latency) follow(*tracker) watch { return watch{began: c.began, ended: c.ended} }

func (c *latency) touch(uint16, int64) {}

func (c *latency) began(h *hold) {
	for int(h.lock) >= len(c.handoff) {
		c.handoff = append(c.handoff, 0)
	}
	if gave := c.handoff[h.lock]; gave != 0 {
		c.record(opHandoff, gave, h.start)
		c.handoff[h.lock] = 0
	}
}

func (c *latency) ended(h *hold) {
	c.record(opHold, h.start, h.end)
	if h.over.Kind == history.Release && c.handoff[h.lock] == 0 && h.entitled(h.end, h.end) &&
		c.asks.asking[h.lock] > 0 {
		c.handoff[h.lock] = h.end
	}
}

func (c *latency) record(op int, from, to int64) {
	if !c.run.Counts(from) {
		return
	}
	i, _ := slices.BinarySearchFunc(c.stretches, from, func(s stretch, t int64) int {
		if s.until <= t {
			return -1
		}
		return 1
	})
	i = min(i, len(c.stretches)-1)
	for j := i; j < len(c.stretches) && (j == i || c.stretches[j].from < to); j++ {
		if c.stretches[j].fault {
			i = j
			break
		}
	}
	s := &c.stretches[i]
	if s.ops[op] == nil {
		s.ops[op] = hdrhistogram.New(results.LowestLatency, results.HighestLatency, c.digits)
	}
	// A value clamped to the histogram's range cannot be refused.
	_ = s.ops[op].RecordValue(min(max(to-from, 0), results.HighestLatency))
}

// Finish returns the finding: the tails, by name, so that scenarios can have expectations on them.
func (c *latency) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{}}
	for op, name := range results.Operations {
		q, _ := c.quantiles(op, func(stretch) bool { return true })
		for quantile, v := range map[string]*float64{
			"p50": q.P50, "p90": q.P90, "p95": q.P95, "p99": q.P99,
			"p999": q.P999, "max": q.Max,
		} {
			f.Measures[name+"_"+quantile+"_ms"] = v
		}
	}
	if n := len(c.run.Faults); n > mostPhased {
		f.Warnings = append(f.Warnings, fmt.Sprintf("latency by phases covers the first %d of %d injections",
			mostPhased, n))
	}
	return f
}

// quantiles summarises an operation over the wanted stretches; ok is false without samples.
func (c *latency) quantiles(op int, want func(stretch) bool) (q results.Quantiles, ok bool) {
	sum := hdrhistogram.New(results.LowestLatency, results.HighestLatency, c.digits)
	for _, s := range c.stretches {
		if s.ops[op] != nil && want(s) {
			sum.Merge(s.ops[op])
		}
	}
	if sum.TotalCount() == 0 {
		return results.Quantiles{}, false
	}
	at := func(p float64) *float64 { return new(results.Milli(sum.ValueAtQuantile(p))) }
	return results.Quantiles{
		N: sum.TotalCount(), P50: at(50), P90: at(90), P95: at(95), P99: at(99), P999: at(99.9),
		Max: new(results.Milli(sum.Max())),
	}, true
}

// all returns the latencies of the wanted stretches by operation. An operation without samples has N 0 and no
// figures.
func (c *latency) all(want func(stretch) bool) map[string]results.Quantiles {
	qs := map[string]results.Quantiles{}
	for op, name := range results.Operations {
		qs[name], _ = c.quantiles(op, want)
	}
	return qs
}

// Latency returns the latencies of the whole run.
func (c *latency) Latency() map[string]results.Quantiles {
	return c.all(func(stretch) bool { return true })
}

// Phases returns the latencies before the first fault, and during and after each.
func (c *latency) Phases() []results.PhaseLatency {
	if len(c.run.Faults) == 0 {
		return nil
	}
	end := c.run.End
	if end == 0 {
		end = c.stretches[len(c.stretches)-1].from
	}
	phase := func(name string, from, until int64) results.PhaseLatency {
		return results.PhaseLatency{
			Name: name, FromMS: results.Milli(from - c.run.Start), ToMS: results.Milli(until - c.run.Start),
			Latency: c.all(func(s stretch) bool { return s.from >= from && s.from < until }),
		}
	}
	ps := []results.PhaseLatency{phase("before", c.run.Start, c.run.Faults[0].Start)}
	for i, f := range c.run.Faults[:min(len(c.run.Faults), mostPhased)] {
		name := fmt.Sprintf("%s %d", f.Name, f.ID)
		if f.End == 0 {
			ps = append(ps, phase(name, f.Start, max(end, f.Start)))
			continue
		}
		ps = append(ps, phase(name, f.Start, f.End))
		next := max(end, f.End)
		for _, g := range c.run.Faults[i+1:] {
			if g.Start >= f.End {
				next = min(next, g.Start)
				break
			}
		}
		ps = append(ps, phase("after "+name, f.End, next))
	}
	return ps
}

// WriteLogs writes one HdrHistogram log for each operation into the run's latency folder, in ns. It has a line for
// each stretch between two moments at which a fault began or ended, so that any processor of such logs can summarise
// the run. started is when the run was started, in RFC 3339; the lines' times are in seconds since the start of the
// workload.
func (c *latency) WriteLogs(dir, started string) error {
	dir = filepath.Join(dir, results.DirLatency)
	if err := results.MakeOwn(dir); err != nil {
		return err
	}
	for op, name := range results.Operations {
		b, err := c.log(op, started)
		if err != nil {
			return err
		}
		if err := results.WriteAtomically(filepath.Join(dir, name+".hlog"), b); err != nil {
			return err
		}
	}
	return nil
}

func (c *latency) log(op int, started string) ([]byte, error) {
	var b bytes.Buffer
	w := hdrhistogram.NewHistogramLogWriter(&b)
	if err := w.OutputLogFormatVersion(); err != nil {
		return nil, err
	}
	if t, err := time.Parse(time.RFC3339Nano, started); err == nil {
		if err := w.OutputStartTime(t.UnixMilli()); err != nil {
			return nil, err
		}
	}
	if err := w.OutputLegend(); err != nil {
		return nil, err
	}
	for _, s := range c.stretches {
		h := s.ops[op]
		if h == nil {
			continue
		}
		until := s.until
		if until == results.Forever {
			until = max(c.run.End, s.from)
		}
		h.SetStartTimeMs((s.from - c.run.Start) / 1e6)
		h.SetEndTimeMs((until - c.run.Start) / 1e6)
		if err := w.OutputIntervalHistogram(h); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
