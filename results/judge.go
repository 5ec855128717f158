package results

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// docket is all that a run directory says.
type docket struct {
	dir      string
	scenario scenarios.Scenario
	env      Env
	run      Run
	faults   []history.Fault // as recorded; after the trial, as the history leaves them
	observed []history.Observation
	tally    tally
	findings []Finding
	latency  *latency
}

// Judge reads the run directory and says what it means. It writes the latency logs into it and nothing else. The same
// directory yields the same report.
//
// A damaged history is an error that wraps history.ErrCorrupt and says where; the report beside it is unknown for that
// reason, and in it nothing is judged.
func Judge(dir string) (Report, error) {
	return judge(dir, Checkers())
}

func judge(dir string, kinds []CheckerKind) (Report, error) {
	d := docket{dir: dir}
	if abs, err := filepath.Abs(dir); err == nil {
		d.dir = abs
	}
	var err error
	if d.env, err = ReadEnv(dir); err != nil {
		return Report{}, fmt.Errorf("run directory: %w", err)
	}
	if d.scenario, err = readScenario(dir); err != nil {
		return Report{}, fmt.Errorf("run directory: %w", err)
	}
	if d.faults, err = ReadFaults(dir); err == nil {
		if d.observed, err = ReadObserved(dir); err == nil {
			err = d.hear(kinds)
		}
	}
	if err != nil {
		d.findings, d.tally, d.latency = nil, tally{}, nil
		for _, k := range kinds {
			d.findings = append(d.findings, nothingJudged(k, ""))
		}
		return d.report(err), err
	}
	r := d.report(nil)
	if d.latency != nil {
		if err := d.latency.writeLogs(d.dir, d.env.Started); err != nil {
			r.Warnings = append(r.Warnings, "the latency logs were not written: "+err.Error())
		}
	}
	return r, nil
}

// makeRun tells the checkers what they must know. A fault that never came to be has no duration.
func (d *docket) makeRun(m *Log) {
	e := d.env
	d.run = Run{
		TTL: e.TTL, Locks: m.Locks(), Token: e.Token, Expires: e.Expires, Recovery: e.Recovery, Increments: e.Increments,
		Writes: e.Writes, Terms: e.Terms, Directed: e.Directed, Resource: e.Resource, Guard: e.Guard, Replicas: e.Replicas, Faults: made(d.faults), Observed: d.observed,
		Processes: m.merge.Processes(), Clients: e.Clients, Readings: e.Readings, Start: e.Start, End: e.End,
	}
	d.run.Cores, _ = strconv.Atoi(e.Host["cores"]) // 0 where the host did not tell
	for _, c := range e.Clients {
		if c.Dead {
			d.run.Dead = append(d.run.Dead, c.Name)
		}
	}
	for i := range d.run.Faults {
		if f := &d.run.Faults[i]; f.End == 0 && f.Receipt.Status == history.NotInstalled {
			f.End = max(f.Start, f.Receipt.Time)
		}
	}
	slices.SortStableFunc(d.run.Faults, func(a, b history.Fault) int { return cmp.Compare(a.Start, b.Start) })
	d.run.still = newStandstills(d.run)
}

// batchSize is how many events are read before the checkers see them.
const batchSize = 1024

// hear reads the whole history once and lets every checker see it.
func (d *docket) hear(kinds []CheckerKind) (err error) {
	m, err := OpenLog(d.dir, d.env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	d.makeRun(m)
	var bench []*juror
	for _, k := range kinds {
		bench = append(bench, seat(k, d.run))
	}
	rec := newReceipts(d.run)
	events, from := make([]history.Event, batchSize), make([]*history.Header, batchSize)
	for end := false; !end; {
		n := 0
		for ; n < batchSize; n++ {
			if from[n], err = m.Next(&events[n]); err != nil {
				break
			}
			d.tally.observe(&events[n])
			d.run.still.observe(from[n].Process, &events[n])
			rec.observe(&events[n])
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		end, err = err != nil, nil
		for _, j := range bench {
			j.observe(events[:n], from[:n])
		}
	}
	if err := d.complete(m.heard); err != nil {
		return err
	}
	for _, j := range bench {
		d.findings = append(d.findings, j.finish())
		if l, ok := j.checker.(*latency); ok && j.crash == "" {
			d.latency = l
		}
	}
	excuseHarm(d.findings)
	rec.run.Faults = d.faults
	d.faults = rec.faults()
	return nil
}

// complete wants the history of every process that the run had, and in it all that the process says it has sent. One
// that was killed cannot tell, and of a run that was cut short nobody did.
func (d *docket) complete(heard map[string]int64) error {
	missing := func(process, why string) error {
		return fmt.Errorf("%w: %s: %s", history.ErrCorrupt, filepath.Join(d.dir, DirHistory, process+filepath.Ext(history.Pattern)), why)
	}
	if _, ok := d.run.Process(history.Engine); !ok {
		return missing(history.Engine, "the file is missing")
	}
	for _, c := range d.env.Clients {
		if _, ok := d.run.Process(c.Name); !ok {
			if d.env.Start == 0 {
				continue // the workload was never let go: not every node came so far as to have a history
			}
			return missing(c.Name, "the file is missing")
		}
		if n := heard[c.Name]; d.env.Finished && !c.Dead && n != c.Recorded {
			return missing(c.Name, fmt.Sprintf("it holds %d events, and the process says that it sent %d", n, c.Recorded))
		}
	}
	return nil
}

// juror is a checker that may crash without taking the others with it.
type juror struct {
	kind    CheckerKind
	checker Checker
	from    ProcessChecker // the same, where it wants to know the process
	crash   string         // why it is unknown; "" while it works
}

func seat(k CheckerKind, run Run) *juror {
	j := &juror{kind: k}
	j.guard(func() {
		j.checker = k.New(run)
		j.from, _ = j.checker.(ProcessChecker)
	})
	return j
}

func (j *juror) guard(f func()) {
	defer func() {
		if p := recover(); p != nil {
			j.crash = fmt.Sprintf("the checker crashed: %v", p)
		}
	}()
	f()
}

func (j *juror) observe(es []history.Event, from []*history.Header) {
	if j.crash != "" {
		return
	}
	j.guard(func() {
		for i := range es {
			if j.from != nil {
				j.from.ObserveFrom(from[i], &es[i])
			} else {
				j.checker.Observe(&es[i])
			}
		}
	})
}

func (j *juror) finish() Finding {
	var f Finding
	if j.crash == "" {
		j.guard(func() { f = j.checker.Finish() })
	}
	if j.crash != "" {
		return nothingJudged(j.kind, j.crash)
	}
	f.Checker = j.kind.Name
	return f
}

// nothingJudged is the finding of a checker that could not do its work.
func nothingJudged(k CheckerKind, why string) Finding {
	f := Finding{Checker: k.Name, Verdict: Unknown, Counts: map[string]*int64{}, Measures: map[string]*float64{}}
	for _, name := range k.Counts {
		f.Counts[name] = nil
	}
	for _, name := range k.Measures {
		f.Measures[name] = nil
	}
	if why != "" {
		f.Warnings = []string{why}
	}
	return f
}

// tally counts what there was to judge.
type tally struct {
	judged  Judged
	dropped int64
}

func (t *tally) observe(e *history.Event) {
	t.judged.Events++
	switch e.Kind {
	case history.Acquire:
		if e.Phase == history.Ok {
			t.judged.Grants++
			if e.Valid != history.ValidUnknown && e.Valid > e.Time {
				t.judged.Entitled++
			}
		}
	case history.EffectRead, history.EffectWrite:
		if e.Phase != history.Info {
			t.judged.Effects++
		}
	case history.Dropped:
		t.dropped += min(max(e.Value, 0), math.MaxInt64-t.dropped)
	default:
	}
}
