package sweep

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// sampleOf reads what a judged run measured after its warm-up.
func sampleOf(dir string, rep results.Report, env results.Env) (capacity.Sample, error) {
	s := capacity.Sample{Verdict: string(rep.Verdict), Spoilt: spoilt(rep, env), Counts: forbidden(rep)}
	var err error
	if !env.NoLock { // else there is no acquire to time
		if s.Latency, s.Acquires, err = quantiles(filepath.Join(dir, results.DirLatency, "acquire.hlog")); err != nil {
			return s, err
		}
	}
	if s.Spoilt == "" || env.Measured != nil && env.Measured.To > env.Measured.From {
		if err := tally(dir, env, &s); err != nil {
			return s, err
		}
	}
	s.Lost = lostShare(rep)
	s.Handoff, s.Requests = rep.Measures["handoff_p50_ms"], rep.Measures["requests_per_grant"]
	for name, into := range map[string]*float64{"offered_per_s": &s.Offered, "generator_lag_p99_ms": &s.Late} {
		if m := rep.Measures[name]; m != nil {
			*into = *m
		}
	}
	for name, into := range map[string]*int64{"unserved": &s.Unserved, "late_starts": &s.LateStarts} {
		if m := rep.Measures[name]; m != nil {
			*into = int64(*m)
		}
	}
	if m := env.Measured; s.Due > 0 && m != nil { // the last arrivals due got no user
		s.Due += float64(s.Unserved) / (float64(m.To-m.From) / 1e9)
	}
	network(rep, &s)
	use(env, &s)
	return s, handedOver(filepath.Join(dir, results.DirLatency, "handoff.hlog"), env, &s)
}

// spoilt returns why a run must not be used; "" if it may. A failed run is measured as well as any.
func spoilt(rep results.Report, env results.Env) string {
	for _, f := range rep.Faults {
		if f.Receipt.Status != history.Installed {
			return fmt.Sprintf("%s was %s", f.Name, f.Receipt.Status)
		}
		if env.Measured != nil && f.Receipt.Time > env.Measured.From {
			return fmt.Sprintf("%s was missing at the end of the warm-up", f.Name)
		}
	}
	switch m := env.Measured; {
	case env.Interrupted:
		return "the run was cut short"
	case m == nil || m.To <= m.From:
		return "the run ended before its measurement"
	case rep.Verdict == results.Unknown && len(rep.Reasons) > 0:
		return rep.Reasons[0]
	case rep.Verdict == results.Unknown:
		return "the run is unknown"
	}
	return ""
}

// forbidden returns the counts that must be zero, if they were judged.
func forbidden(rep results.Report) map[string]int64 {
	out := map[string]int64{}
	for _, x := range rep.Expectations {
		if n := rep.Counts[x.Name]; n != nil && x.Want == "0" {
			out[x.Name] = *n
		}
	}
	return out
}

// lostUpdates is the count of acknowledged writes missing from the final value.
const lostUpdates = "lost_updates"

// lostShare returns the share of the acknowledged writes that the final value lacks; nil: not judged.
func lostShare(rep results.Report) *float64 {
	for _, f := range rep.Findings {
		n, of := f.Counts[lostUpdates], f.Chances[lostUpdates].N
		if n != nil && of > 0 {
			return new(float64(*n) / float64(of))
		}
	}
	return nil
}

// latencies reads a latency log of a run, in ns; nil if nothing was timed.
func latencies(path string) (all *hdrhistogram.Histogram, err error) {
	err = results.EachInterval(path, func(h *hdrhistogram.Histogram) {
		if all == nil {
			all = h
		} else {
			all.Merge(h)
		}
	})
	if err != nil || all == nil || all.TotalCount() == 0 {
		return nil, err
	}
	return all, nil
}

// quantiles reads the latency log of a run, in ms, and the number of timed operations. Without any it returns
// nothing.
func quantiles(path string) (map[string]float64, int64, error) {
	all, err := latencies(path)
	if err != nil || all == nil {
		return nil, 0, err
	}
	out := map[string]float64{"max": results.Milli(all.Max()), "mean": all.Mean() / 1e6}
	for i, name := range capacity.Quantiles {
		out[name] = results.Milli(all.ValueAtQuantile(100 * capacity.Levels[i]))
	}
	return out, all.TotalCount(), nil
}

// handedOver spreads the time of all handoffs over the cycles.
func handedOver(path string, env results.Env, s *capacity.Sample) error {
	if s.Handoff == nil || env.Measured == nil || s.Cycles <= 0 {
		return nil
	}
	all, err := latencies(path)
	if err != nil || all == nil {
		return err
	}
	cycles := s.Cycles * float64(env.Measured.To-env.Measured.From) / 1e9
	mean := all.Mean() / 1e6 * float64(all.TotalCount()) / cycles
	s.HandoffMean = &mean
	return nil
}

// counted is one user's cycle under way.
type counted struct {
	asked, granted int64 // ns; 0: not yet
}

// tally computes rates from the history, with code that no checker shares. It counts how many cycles ended, how long
// they and their holds took, and how many users were in one on average.
func tally(dir string, env results.Env, s *capacity.Sample) (err error) {
	log, err := results.OpenLog(dir, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	t := tallying{from: env.Measured.From, to: env.Measured.To, users: map[history.User]*counted{}}
	var e history.Event
	for {
		if _, err := log.Next(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		t.observe(&e)
	}
	t.end()
	seconds := float64(t.to-t.from) / 1e9
	s.Cycles, s.InService = float64(t.cycles)/seconds, t.inside/1e9/seconds
	if t.writes > 0 {
		s.Writes = new(float64(t.writes) / seconds)
	}
	if t.due > 0 {
		s.Due = float64(t.due) / seconds
	}
	s.Cycle, s.HoldMean = mean(t.cycle, t.cycles), mean(t.held, t.holds)
	return nil
}

func mean(ns float64, n int64) float64 {
	if n == 0 {
		return 0
	}
	return ns / 1e6 / float64(n)
}

// tallying sums up the cycles within a stretch of the run.
type tallying struct {
	from, to      int64
	users         map[history.User]*counted
	inside        float64 // ns of all users
	cycle, held   float64
	cycles, holds int64
	due           int64 // arrivals of an open loop that were due and that a user began
	writes        int64 // applied by the resource
}

func (t *tallying) within(at int64) bool { return at >= t.from && at < t.to }

func (t *tallying) observe(e *history.Event) {
	if e.Kind == history.EffectWrite && e.Phase == history.Ok && t.within(e.Time) {
		t.writes++
	}
	if e.Kind != history.Acquire && e.Kind != history.Release {
		return
	}
	u := t.users[e.User]
	if u == nil {
		u = &counted{}
		t.users[e.User] = u
	}
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		u.asked, u.granted = e.Time, 0
		if e.Value != 0 && t.within(e.Value) {
			t.due++
		}
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		u.granted = e.Time
	case e.Kind == history.Acquire:
		t.over(u, e.Time)
	case e.Phase == history.Invoke:
		if u.granted != 0 && t.within(e.Time) {
			t.held += float64(e.Time - u.granted)
			t.holds++
		}
	default:
		if u.asked != 0 && e.Phase == history.Ok && t.within(e.Time) {
			t.cycle += float64(e.Time - u.asked)
			t.cycles++
		}
		t.over(u, e.Time)
	}
}

// end closes the service time of users who are in service when the history ends.
func (t *tallying) end() {
	for _, u := range t.users {
		t.over(u, t.to)
	}
}

// over closes a user's service time.
func (t *tallying) over(u *counted, at int64) {
	if u.asked != 0 {
		t.inside += float64(max(0, min(at, t.to)-max(u.asked, t.from)))
	}
	u.asked, u.granted = 0, 0
}

// network reads from the receipts what the links did.
func network(rep results.Report, s *capacity.Sample) {
	for _, f := range rep.Faults {
		if trip, ok := f.Receipt.Figures["round_trip_ms"]; ok {
			s.RTT = &trip
		}
		if f.Healed == nil || f.Receipt.By != "queue" || f.EndMS <= f.StartMS {
			continue
		}
		if n, ok := f.Healed.Figures["packets"]; ok {
			a := n / (f.EndMS - f.StartMS) * 1e3
			s.Packets = &a
		}
	}
}

// supervisor is the name in a sample for the CPU of the engine and of everything in its process.
const supervisor = "supervisor"

// use returns the cores used between the two readings, and how long servers waited for their disks. With several
// hosts it returns the cores of the fullest, which is the first to be a limit.
func use(env results.Env, s *capacity.Sample) {
	if len(env.Readings) < 2 {
		return
	}
	a, b := env.Readings[0], env.Readings[len(env.Readings)-1]
	if b.Time <= a.Time {
		return
	}
	cores := func(ns int64) float64 { return float64(ns) / float64(b.Time-a.Time) }
	s.ServerCores = env.ServerCores
	hosts := map[string]map[string]float64{} // cores used, by host and user
	for name, after := range b.CPU {
		before, ok := a.CPU[name]
		if !ok || after < before {
			continue
		}
		who, used := "servers", cores(after-before)
		if _, client := history.ClientOf(name); client {
			who = "clients"
		} else if name == history.Engine {
			who = supervisor
		} else if slices.Contains(env.ResourceNodes, name) {
			who = "resource"
		} else if s.Busiest == nil || used > *s.Busiest {
			s.Busiest = &used
		}
		host := env.Cluster[history.HostOf+name]
		if hosts[host] == nil {
			hosts[host] = map[string]float64{}
		}
		hosts[host][who] += used
	}
	s.Host, s.Cores = fullest(env, hosts)
	if s.CPU = hosts[s.Host]; s.CPU == nil {
		s.CPU = map[string]float64{}
	}
	if a.Machine > 0 && b.Machine > a.Machine && s.Host == env.Cluster[history.HostOf+history.Engine] {
		all := cores(b.Machine - a.Machine)
		s.Machine = &all
	}
	var n, ns int64
	for name, after := range b.Syncs {
		if before, ok := a.Syncs[name]; ok {
			n, ns = n+after.N-before.N, ns+after.NS-before.NS
		}
	}
	if n > 0 && ns > 0 { // a server may not time them, or its clock may be too coarse
		fsync := results.Milli(ns) / float64(n)
		s.Fsync = &fsync
	}
}

// fullest returns the host that uses the largest share of its cores, and its number of cores; 0: not reported.
func fullest(env results.Env, hosts map[string]map[string]float64) (name string, cores int) {
	most := -1.0
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		has := env.Host["cores"] // a single host has no name
		if host != "" {
			has = env.Cluster[history.CoresOf+host]
		}
		share, used := 0.0, 0.0
		for _, u := range hosts[host] {
			used += u
		}
		n, _ := strconv.Atoi(has)
		if n > 0 {
			share = used / float64(n)
		}
		if share > most {
			most, name, cores = share, host, n
		}
	}
	return name, cores
}
