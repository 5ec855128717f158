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

// directory is the parsed content of a run directory.
type directory struct {
	dir      string
	checkers Checkers
	scenario scenarios.Scenario
	env      Env
	run      Run
	faults   []history.Fault // as recorded; after the checkers ran, as corrected by the history
	observed []history.Observation
	tally    tally
	findings []Finding
	latency  Timer // nil if nothing was timed
}

// Judge reads a run directory and returns its report. It writes the latency logs into it and nothing else. The same
// directory yields the same report.
//
// A damaged history is an error that wraps history.ErrCorrupt and says where. The report returned with it is unknown
// for that reason and judges nothing.
func Judge(dir string, checkers Checkers) (Report, error) {
	d := directory{dir: dir, checkers: checkers}
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
	if d.faults, err = ReadFaults(dir); err == nil { // without them a correct lock may look wrong
		var unread error
		if d.observed, unread = ReadObserved(dir); unread != nil {
			d.env.Unknown = append(d.env.Unknown, "the answers of the service cannot be read: "+unread.Error())
		}
		err = d.readHistory()
	}
	if err != nil {
		d.findings, d.tally, d.latency = nil, tally{}, nil
		for _, k := range checkers {
			d.findings = append(d.findings, nothingJudged(k, ""))
		}
		return d.report(err), err
	}
	r := d.report(nil)
	if d.latency != nil {
		if err := d.latency.WriteLogs(d.dir, d.env.Started); err != nil {
			r.Warnings = append(r.Warnings, "the latency logs were not written: "+err.Error())
		}
	}
	return r, nil
}

// makeRun collects what the checkers must know. A fault that was never installed has no duration.
func (d *directory) makeRun(m *Log, lost []Lost) {
	e := d.env
	d.run = Run{
		TTL: e.TTL, Locks: m.Locks(), Token: e.Token, Expires: e.Expires, Permits: e.Permits, Recovery: e.Recovery,
		NoLock: e.NoLock,
		Tells:  e.tells(), Fair: e.Fair, Majority: e.Majority, Terse: e.Terse, Increments: e.Increments,
		Writes: e.Writes, Terms: e.Terms, Directed: e.Directed, Stepped: e.Directed || len(e.People) > 0,
		Resource: e.Resource, Protected: e.ResourceNodes, Guard: e.Guard, Replicas: e.Replicas, Faults: made(d.faults),
		Observed:  d.observed,
		Processes: m.merge.Processes(), Clients: e.Clients, Readings: e.Readings, Footprints: e.Footprints,
		Contents: e.Contents, Hung: e.Hung,
		Users: e.Users, Acquires: e.Acquires, Releases: e.Releases, Start: e.Start, End: e.End, Measured: e.Measured,
		Lost: lost,
	}
	d.run.Cores, _ = strconv.Atoi(e.Host["cores"]) // 0 if the host did not report them
	for _, c := range e.Clients {
		if c.Dead || c.Lost {
			d.run.Dead = append(d.run.Dead, c.Name)
		}
	}
	for i := range d.run.Faults {
		if f := &d.run.Faults[i]; f.End == 0 && f.Receipt.Status == history.NotInstalled {
			f.End = max(f.Start, f.Receipt.Time)
		}
	}
	slices.SortStableFunc(d.run.Faults, func(a, b history.Fault) int { return cmp.Compare(a.Start, b.Start) })
	d.run.Still = NewStandstills(d.run)
}

// batchSize is the number of events that are read before the checkers see them.
const batchSize = 1024

// readHistory reads the whole history once and shows every event to every checker.
func (d *directory) readHistory() (err error) {
	lost, err := d.lost()
	if err != nil {
		return err
	}
	m, err := OpenLog(d.dir, d.env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	d.makeRun(m, lost)
	d.tally.noLock = d.env.NoLock
	if d.env.Expires {
		d.tally.ttl = d.env.TTL
	}
	trial := NewCheckerRunner(d.checkers, d.run)
	rec := newReceipts(d.run)
	events, from := make([]history.Event, batchSize), make([]*history.Header, batchSize)
	for end := false; !end; {
		n := 0
		for ; n < batchSize; n++ {
			if from[n], err = m.Next(&events[n]); err != nil {
				break
			}
			d.tally.observe(&events[n])
			if !from[n].Exact() {
				d.tally.clockError = max(d.tally.clockError, from[n].Error(events[n].Time))
			}
			d.run.Still.Observe(from[n].Process, &events[n])
			rec.observe(&events[n])
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		end, err = err != nil, nil
		trial.Observe(events[:n], from[:n])
	}
	if err := d.complete(m.Heard()); err != nil {
		return err
	}
	d.findings, d.latency = trial.Finish()
	rec.run.Faults = d.faults
	d.faults = rec.faults()
	return nil
}

// lost reads the last events of lost processes. Older run directories do not note lost processes.
func (d *directory) lost() (out []Lost, err error) {
	at := map[string]int{}
	for _, c := range d.env.Clients {
		if _, known := at[c.Name]; c.Lost && !known {
			at[c.Name] = len(out)
			out = append(out, Lost{
				Name: c.Name, Host: d.env.Cluster[history.HostOf+c.Name], Ended: c.Ended,
				Open: map[openGrant]uint16{},
			})
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	m, err := history.OpenAll(filepath.Join(d.dir, DirHistory))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for {
		var e history.Event
		from, err := m.Next(&e)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if i, is := at[from.Process]; is {
			out[i].hear(&e)
		}
	}
}

// complete demands the history of every process of the run, with every event that the process reports as sent. A
// killed process cannot report, and in a run that was cut short no process did.
func (d *directory) complete(heard map[string]int64) error {
	missing := func(process, why string) error {
		return fmt.Errorf("%w: %s: %s", history.ErrCorrupt,
			filepath.Join(d.dir, DirHistory, process+filepath.Ext(history.Pattern)), why)
	}
	if _, ok := d.run.Process(history.Engine); !ok {
		return missing(history.Engine, "the file is missing")
	}
	for _, c := range d.env.Clients {
		if _, ok := d.run.Process(c.Name); !ok {
			if d.env.Start == 0 {
				continue // the workload never started, so some nodes may have no history
			}
			return missing(c.Name, "the file is missing")
		}
		if n := heard[c.Name]; d.env.Finished && !c.Dead && n != c.Recorded {
			return missing(c.Name, fmt.Sprintf("it holds %d events, but the process reports %d sent", n,
				c.Recorded))
		}
	}
	return nil
}

// tally counts what there was to judge.
type tally struct {
	noLock     bool  // no grants exist
	ttl        int64 // ns, if grants end by it; else 0
	judged     Judged
	brief      int64 // of the entitled grants: those that were valid for less than a tenth of the TTL
	dropped    int64
	clockError int64 // ns: the largest error of an event's time
}

func (t *tally) observe(e *history.Event) {
	t.judged.Events++
	switch e.Kind {
	case history.Acquire:
		if e.Phase == history.Ok && !t.noLock {
			t.judged.Grants++
			if e.Valid != history.ValidUnknown && e.Valid > e.Time {
				t.judged.Entitled++
				if e.Value > 0 && e.Valid-e.Value < t.ttl/10 {
					t.brief++
				}
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
