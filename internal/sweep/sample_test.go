package sweep

import (
	"maps"
	"math"
	"reflect"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// cycle returns the events of one user who requests, gets, begins to release and has released a lock at those ms; 0
// is never.
func cycle(user int, asked, got, gave, rid int64) (out []history.Event) {
	u := history.MakeUser(0, user)
	for _, e := range []history.Event{
		{Time: asked * 1e6, Kind: history.Acquire, Phase: history.Invoke},
		{Time: got * 1e6, Kind: history.Acquire, Phase: history.Ok},
		{Time: gave * 1e6, Kind: history.Release, Phase: history.Invoke},
		{Time: rid * 1e6, Kind: history.Release, Phase: history.Ok},
	} {
		if e.User = u; e.Time != 0 {
			out = append(out, e)
		}
	}
	return out
}

// TestTally compares with a count by hand of what lies within 100 ms to 200 ms.
func TestTally(t *testing.T) {
	t.Parallel()
	x := tallying{from: 100e6, to: 200e6, users: map[history.User]*counted{}}
	for _, events := range [][]history.Event{
		cycle(0, 50, 60, 110, 120),   // 20 ms of it are inside; it ends inside
		cycle(0, 130, 140, 150, 160), // all of it
		cycle(1, 190, 195, 205, 210), // 10 ms of it; it ends behind
		cycle(2, 150, 0, 0, 0),       // it waits until the end: 50 ms
		cycle(3, 10, 20, 30, 40),     // none of it
	} {
		for i := range events {
			x.observe(&events[i])
		}
	}
	x.end()
	if x.cycles != 2 || x.cycle != (70+30)*1e6 || x.holds != 2 || x.held != (50+10)*1e6 {
		t.Errorf("%d cycles in %g ns, %d holds in %g ns", x.cycles, x.cycle, x.holds, x.held)
	}
	if want := (20.0 + 30 + 10 + 50) * 1e6; x.inside != want {
		t.Errorf("users were inside for %g ns, want %g", x.inside, want)
	}
}

// TestArrivalsAreCountedWhenTheyAreDue, whenever a user began them: what counts is offered and done within one time.
func TestArrivalsAreCountedWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	x := tallying{from: 100e6, to: 200e6, users: map[history.User]*counted{}}
	for i, due := range []int64{99, 100, 150, 199, 200, 0} { // ms; 0: of a closed loop
		events := cycle(i, 198, 201, 202, 203)
		events[0].Value = due * 1e6
		for k := range events {
			x.observe(&events[k])
		}
	}
	if x.due != 3 {
		t.Errorf("%d arrivals were due within the time, want 3", x.due)
	}
}

// TestWritesAreThoseOfTheMeasuredTime requires the writes applied within the time, and the share of the acknowledged
// ones that is lost.
func TestWritesAreThoseOfTheMeasuredTime(t *testing.T) {
	t.Parallel()
	x := tallying{from: 100e6, to: 200e6, users: map[history.User]*counted{}}
	for _, e := range []history.Event{
		{Kind: history.EffectWrite, Phase: history.Ok, Time: 99e6},
		{Kind: history.EffectWrite, Phase: history.Ok, Time: 100e6},
		{Kind: history.EffectWrite, Phase: history.Fail, Time: 150e6},
		{Kind: history.EffectRead, Phase: history.Ok, Time: 150e6},
		{Kind: history.EffectWrite, Phase: history.Ok, Time: 199e6},
		{Kind: history.EffectWrite, Phase: history.Ok, Time: 200e6},
	} {
		x.observe(&e)
	}
	if x.writes != 2 {
		t.Errorf("%d writes were applied within the time, want 2", x.writes)
	}
	judged := func(n *int64, of int64) results.Report {
		return results.Report{Findings: []results.Finding{{}, {Counts: map[string]*int64{lostUpdates: n}, Chances: map[string]results.Chances{lostUpdates: {N: of}}}}}
	}
	if s := lostShare(judged(new(int64(3)), 12)); s == nil || *s != 0.25 {
		t.Errorf("3 of 12 are lost: the share is %v, want 0.25", s)
	}
	for _, rep := range []results.Report{{}, judged(nil, 12), judged(new(int64(0)), 0)} {
		if s := lostShare(rep); s != nil {
			t.Errorf("nothing was judged, and the share is %g", *s)
		}
	}
}

func TestUsed(t *testing.T) {
	t.Parallel()
	env := results.Env{ServerCores: 1, ResourceNodes: []string{"register"}, Readings: []results.Reading{
		{
			Time: 1e9, Machine: 50e9, CPU: map[string]int64{"engine": 1e9, "client-1": 5e9, "client-2": 0, "etcd-1": 7e9, "etcd-3": 0, "register": 0},
			Syncs: map[string]results.Syncs{"etcd-1": {N: 10, NS: 50e6}},
		},
		{
			Time: 3e9, Machine: 58e9,
			CPU:   map[string]int64{"engine": 2e9, "client-1": 6e9, "client-2": 2e9, "etcd-1": 8e9, "etcd-3": 3e9, "etcd-2": 9e9, "register": 2e9},
			Syncs: map[string]results.Syncs{"etcd-1": {N: 20, NS: 70e6}},
		},
	}}
	var s capacity.Sample
	use(env, &s)
	for who, want := range map[string]float64{"supervisor": 0.5, "clients": 1.5, "servers": 2, "resource": 1} {
		if got, ok := s.CPU[who]; !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %g cores, want %g", who, got, want)
		}
	}
	for what, x := range map[string]struct {
		got  *float64
		want float64
	}{"fsync": {s.Fsync, 2}, "the machine": {s.Machine, 4}, "the busiest server": {s.Busiest, 1.5}, "the cores of a server": {&s.ServerCores, 1}} {
		if x.got == nil || *x.got != x.want {
			t.Errorf("%s is %v, want %g", what, x.got, x.want)
		}
	}
	s = capacity.Sample{}
	if use(results.Env{Readings: env.Readings[:1]}, &s); s.CPU != nil || s.Fsync != nil || s.Machine != nil || s.Busiest != nil {
		t.Errorf("one reading tells %+v", s)
	}
	env.Readings[0].Machine = 0
	env.Readings[1].Syncs["etcd-1"] = results.Syncs{N: 20, NS: 50e6} // counted, and not timed
	if use(env, &s); s.Fsync != nil {
		t.Errorf("servers that time no sync waited %g ms", *s.Fsync)
	}
	if s.Machine != nil {
		t.Errorf("a machine that tells nothing used %g cores", *s.Machine)
	}
}

// TestUsedOnSeveralHosts requires the figures of the host that is fullest relative to its cores. Figures of a whole
// machine come from the engine's host alone.
func TestUsedOnSeveralHosts(t *testing.T) {
	t.Parallel()
	read := func(ns int64) results.Reading {
		return results.Reading{Time: 1e9 + ns, Machine: 1 + ns, CPU: map[string]int64{"engine": ns / 4, "client-1": ns, "client-2": ns / 2, "etcd-1": ns / 2, "etcd-2": 3 * ns}}
	}
	env := func(big string) results.Env {
		return results.Env{
			Host: map[string]string{"cores": "64"}, Readings: []results.Reading{read(0), read(2e9)},
			Cluster: map[string]string{
				"host_engine": "a", "host_client-1": "a", "host_client-2": "b", "host_etcd-1": "b", "host_etcd-2": "c",
				"cores_a": "2", "cores_b": "2", "cores_c": big,
			},
		}
	}
	for big, want := range map[string]capacity.Sample{
		"4":  {Host: "c", Cores: 4, CPU: map[string]float64{"servers": 3}},
		"16": {Host: "a", Cores: 2, CPU: map[string]float64{"supervisor": 0.25, "clients": 1}, Machine: new(1.0)},
		"":   {Host: "a", Cores: 2, CPU: map[string]float64{"supervisor": 0.25, "clients": 1}, Machine: new(1.0)}, // it does not report its cores
	} {
		var s capacity.Sample
		use(env(big), &s)
		if s.Busiest == nil || *s.Busiest != 3 {
			t.Errorf("%q cores: the busiest server used %v, want 3", big, s.Busiest)
		}
		if s.Busiest = nil; !reflect.DeepEqual(s, want) {
			t.Errorf("%q cores: %+v, want %+v", big, s, want)
		}
	}
}

func TestSpoilt(t *testing.T) {
	t.Parallel()
	measured := results.Env{Measured: &results.Interval{From: 5, To: 9}}
	delay := func(s history.ReceiptStatus, at int64) []results.FaultResult {
		return []results.FaultResult{{Name: "delay", Receipt: history.Receipt{Status: s, Time: at}}}
	}
	for _, c := range []struct {
		rep  results.Report
		env  results.Env
		want string
	}{
		{results.Report{Verdict: results.Pass}, measured, ""},
		{results.Report{Verdict: results.Fail, Reasons: []string{"double_grants"}}, measured, ""},
		{results.Report{Verdict: results.Unknown, Reasons: []string{"events were dropped"}}, measured, "events were dropped"},
		{results.Report{Verdict: results.Pass, Faults: delay(history.Installed, 4)}, measured, ""},
		{results.Report{Verdict: results.Pass, Faults: delay(history.Installed, 6)}, measured, "delay was missing at the end of the warm-up"},
		{results.Report{Verdict: results.Pass, Faults: delay(history.NotInstalled, 4)}, measured, "delay was not-installed"},
		{results.Report{Verdict: results.Pass}, results.Env{Measured: &results.Interval{From: 5, To: 4}}, "the run ended before its measurement"},
		{results.Report{Verdict: results.Pass}, results.Env{Interrupted: true, Measured: measured.Measured}, "the run was cut short"},
	} {
		if got := spoilt(c.rep, c.env); got != c.want {
			t.Errorf("%+v: %q, want %q", c.rep, got, c.want)
		}
	}
}

// TestNetwork requires the achieved round trip, and packets only if a queue replaces the kernel's emulation.
func TestNetwork(t *testing.T) {
	t.Parallel()
	fault := results.FaultResult{
		StartMS: 1000, EndMS: 3000, Receipt: history.Receipt{By: "queue", Figures: map[string]float64{"round_trip_ms": 2.3}},
		Healed: &history.Receipt{Figures: map[string]float64{"packets": 500}},
	}
	var s capacity.Sample
	network(results.Report{Faults: []results.FaultResult{fault}}, &s)
	if s.RTT == nil || *s.RTT != 2.3 || s.Packets == nil || *s.Packets != 250 {
		t.Errorf("round trip %v, packets %v", s.RTT, s.Packets)
	}
	fault.Receipt.By, s = "netem", capacity.Sample{}
	network(results.Report{Faults: []results.FaultResult{fault}}, &s)
	if s.RTT == nil || s.Packets != nil {
		t.Errorf("by netem: round trip %v, packets %v", s.RTT, s.Packets)
	}
}

// TestForbidden requires exactly the counts that must be zero and were judged.
func TestForbidden(t *testing.T) {
	t.Parallel()
	rep := results.Report{
		Counts: map[string]*int64{"double_grants": new(int64(3)), "token_regressions": nil, "overlapping_holds": new(int64(1)), "stale_writes": new(int64(0))},
		Expectations: []results.ExpectationResult{
			{Name: "double_grants", Want: "0"},
			{Name: "token_regressions", Want: "0"},
			{Name: "overlapping_holds", Want: ">0"},
			{Name: "stale_writes", Want: "0"},
			{Name: "judged", Want: ">=1"},
		},
	}
	if got, want := forbidden(rep), map[string]int64{"double_grants": 3, "stale_writes": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
