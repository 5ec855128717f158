package report

import (
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// synthetic is a run directory with its report.
type synthetic struct {
	dir    string
	report results.Report
}

func ptr[T any](v T) *T { return &v }

// baseReport is common to all synthetic reports.
func baseReport(w *world, dir string) results.Report {
	r := results.Report{
		Schema: results.ReportSchema, Scenario: w.env.Scenario, Verdict: results.Pass, Seed: 42, Replay: w.env.Replay,
		Provider: "docker", Backend: w.env.Backend, Lock: w.env.Lock,
		Versions: map[string]string{"etcd.version": "3.7.3", "go.etcd.io/etcd/client/v3": "v3.7.3"}, Timings: w.env.Timings,
		Judged: results.Judged{Grants: 1234, Events: 9876, Effects: 2468},
		Counts: map[string]*int64{
			"double_grants": ptr(int64(0)), "overlapping_holds": ptr(int64(0)), "stale_writes": ptr(int64(0)),
			"fence_saves": ptr(int64(0)), "lost_updates": ptr(int64(0)), "token_regressions": ptr(int64(0)),
			"foreign_releases": ptr(int64(0)), "stuck_locks": nil,
		},
		Measures: map[string]*float64{"throughput_per_s": ptr(102.8), "unavailability_ms_max": ptr(2013.4), "jain": nil},
		Strength: []string{"double grants: 0 of 1234 grants judged, so the rate is below 0.243 % (95 %)"},
		Latency: map[string]results.Quantiles{
			"acquire": {N: 1234, P50: ptr(12.1), P90: ptr(15.9), P99: ptr(18.2), P999: ptr(2013.4), Max: ptr(2013.4)},
			"hold":    {N: 1234, P50: ptr(50.0), P90: ptr(50.1), P99: ptr(51.7), P999: ptr(4100.2), Max: ptr(4100.2)},
			"release": {N: 1233, P50: ptr(1.31), P90: ptr(1.42), P99: ptr(2.05), P999: ptr(3.1), Max: ptr(3.1)},
			"handoff": {N: 1200, P50: ptr(5.02), P90: ptr(5.9), P99: ptr(8.8), P999: ptr(2013.4), Max: ptr(2013.4)},
		},
		RunDir: dir,
	}
	for _, name := range []string{"double_grants", "token_regressions", "foreign_releases"} {
		r.Expectations = append(r.Expectations, results.ExpectationResult{Name: name, Want: "0", Got: ptr(0.0), Verdict: results.Pass, Default: true})
	}
	return r
}

func pauseFault(user history.User, g *grant) history.Fault {
	return history.Fault{
		ID: 1, Name: "pause", Selector: "holder", Targets: []string{"client-3"}, Target: "client-3 (user 0, lock-0)",
		User: &user, Grant: g.ref.Grant, Lock: "lock-0", Params: "for 4s", Planned: at(5000), Start: at(5011), Bit: at(5012.4), End: at(9013.1),
		Receipt: history.Receipt{Status: history.Installed, Evidence: "pid 4711, all 9 threads stopped; grant 1 was held at the stop", Time: at(5012.4)},
		Healed:  &history.Receipt{Status: history.Installed, Evidence: "pid 4711, all 9 threads sleeping", Time: at(9013.1)},
	}
}

func faultResults(w *world) []results.FaultResult {
	var out []results.FaultResult
	for _, f := range w.faults {
		out = append(out, results.FaultResult{
			Name: f.Name, Target: f.Target, Params: f.Params, StartMS: float64(f.Start-start) / 1e6,
			EndMS: float64(f.End-start) / 1e6, Misses: f.Misses, Receipt: f.Receipt, Healed: f.Healed,
		})
	}
	return out
}

// pausedRun is the classic: the holder is stopped, its lease runs out, another user enters, and the holder wakes and
// writes. With the fence the resource refuses that write.
func pausedRun(t *testing.T, fenced bool) synthetic {
	w := newWorld(t, 3)
	w.cycles(1, 20, 4950)
	a := w.acquire(history.MakeUser(2, 0), 4990, 5003.2, 3391, 2000)
	w.access(a, history.Read, 5004, 5004.4, 89, history.Ok)
	b := w.acquire(history.MakeUser(0, 1), 4970, 7006.1, 3397, 8000)
	b.ref.Issued = at(7004.9)
	w.access(b, history.Read, 7006.5, 7006.9, 89, history.Ok)
	w.access(b, history.Write, 7056.8, 7057.2, 90, history.Ok)
	w.release(b, 7057.9, history.Ok, 0)
	w.value = 90
	w.cycles(1, 7080, 9000)
	phase := history.Ok
	if fenced {
		w.seen = 3397
		phase, w.env.Guard, w.env.Scenario = history.Fail, "fence", "etcd-holder-pause-fenced"
	} else {
		w.env.Scenario = "etcd-holder-pause"
	}
	w.access(a, history.Write, 9013.6, 9014.1, 90, phase)
	w.release(a, 9015.2, history.Fail, history.CodeNotHeld)
	w.cycles(1, 9100, 11900)
	dir := w.write(a, b)
	w.faults = []history.Fault{pauseFault(a.user, a)}
	writeFaults(t, dir, w.faults)
	r := baseReport(w, dir)
	r.Claim = "A paused holder acts after its lease ended. The service granted nothing twice, yet two clients were inside."
	r.Faults = faultResults(w)
	r.Counts["overlapping_holds"] = ptr(int64(1))
	holds := []results.HoldRef{a.ref, b.ref}
	overlap := results.Witness{
		Kind: "overlapping_hold", Lock: "lock-0", From: b.ref.Start, To: b.ref.End, Holds: holds,
		Text: "client-3/0 still had lock-0 in hand, past its validity, when client-1/1 got it at 7006.1 ms.",
	}
	r.Findings = []results.Finding{{Checker: "exclusion", Verdict: results.Violated, Witnesses: []results.Witness{overlap}}}
	harm := results.Witness{Kind: "stale_write", Lock: "lock-0", From: at(9014.1), To: at(9014.1), Holds: holds}
	harm.Text = "client-3/0 wrote 90 at 9014.1 ms under the grant of 5003.2 ms, after client-1/1, granted at 7006.1 ms, had read and written; its validity had ended at 6990 ms."
	harm.Events = []history.Event{{Time: at(9014.1), Seq: 99, Op: 99, User: a.user, Grant: a.ref.Grant, Kind: history.EffectWrite, Phase: history.Ok, Value: 90, Token: 3391}}
	name := "stale_writes"
	if fenced {
		name, harm.Kind = "fence_saves", "fence_save"
		harm.Events[0].Phase, harm.Events[0].Code = history.Fail, history.CodeFenced
		harm.Text = "The resource refused the write of client-3/0 at 9014.1 ms: token 3391, and 3397 had been seen."
	}
	r.Counts[name] = ptr(int64(1))
	r.Expectations = append(r.Expectations, results.ExpectationResult{Name: name, Want: ">0", Got: ptr(1.0), Verdict: results.Pass})
	r.Findings = append(r.Findings, results.Finding{Checker: "stale", Verdict: results.Violated, Witnesses: []results.Witness{harm}})
	r.Phases = []results.PhaseLatency{
		{Name: "before", FromMS: 0, ToMS: 5011, Latency: map[string]results.Quantiles{"acquire": {N: 500, P50: ptr(12.0), P90: ptr(15.0), P99: ptr(18.0), P999: ptr(19.0), Max: ptr(19.0)}}},
		{Name: "pause 1", FromMS: 5011, ToMS: 9013.1, Latency: map[string]results.Quantiles{"acquire": {N: 300, P50: ptr(12.0), P90: ptr(15.0), P99: ptr(18.0), P999: ptr(2013.4), Max: ptr(2013.4)}}},
	}
	return synthetic{dir, r}
}

// restartRun is a double grant: the node forgets the lock while its holder is entitled.
func restartRun(t *testing.T) synthetic {
	w := newWorld(t, 2)
	w.env.Scenario, w.env.Backend, w.env.Lock, w.env.Token = "redis-restart-amnesia", "redis", "set-px-lua", "none"
	w.env.Directed, w.env.Workload, w.env.TTL, w.env.Resource = true, "", 10_000*ms, "register"
	a := w.acquire(history.MakeUser(0, 0), 12.1, 13.6, 0, 10_000)
	w.access(a, history.Read, 14.2, 14.6, 0, history.Ok)
	b := w.acquire(history.MakeUser(1, 0), 390.3, 391.5, 0, 10_000)
	w.access(b, history.Read, 392.1, 392.4, 0, history.Ok)
	w.access(b, history.Write, 393.1, 393.5, 1, history.Ok)
	w.access(a, history.Write, 402.1, 402.6, 1, history.Ok)
	w.release(a, 410.2, history.Fail, history.CodeNotHeld)
	w.release(b, 415.2, history.Ok, 0)
	dir := w.write(a, b)
	w.faults = []history.Fault{{
		ID: 1, Name: "restart", Selector: "redis-1", Targets: []string{"redis-1"}, Target: "redis-1", Start: at(20.3), Bit: at(34.9), End: at(371.2),
		Receipt: history.Receipt{Status: history.Installed, Evidence: "pid 4711 is gone; run_id changed from a1 to b2", Time: at(34.9)},
	}}
	writeFaults(t, dir, w.faults)
	r := baseReport(w, dir)
	r.Claim = "A Redis without persistence forgets its locks when it is restarted: the lock itself is granted twice."
	r.Faults = faultResults(w)
	r.Counts["double_grants"] = ptr(int64(1))
	r.Findings = []results.Finding{{Checker: "exclusion", Verdict: results.Violated, Witnesses: []results.Witness{{
		Kind: "double_grant", Lock: "lock-0", From: b.ref.Start, To: a.ref.End, Holds: []results.HoldRef{a.ref, b.ref},
		Text: "client-1/0 and client-2/0 both held lock-0 from 391.5 ms to 410.2 ms; client-1/0 was entitled until 10012.1 ms.",
	}}}}
	return synthetic{dir, r}
}

// healthyRun has nothing to show, and a failed expectation to print.
func healthyRun(t *testing.T) synthetic {
	w := newWorld(t, 2)
	w.env.Scenario = "etcd-healthy"
	w.cycles(0, 20, 6000)
	w.cycles(1, 6020, 11900)
	r := baseReport(w, w.write())
	r.Verdict, r.Claim = results.Fail, "Without a fault the lock excludes."
	r.Reasons = []string{"throughput_per_s is 102.8, expected >500"}
	r.Expectations = append(r.Expectations, results.ExpectationResult{
		Name: "throughput_per_s", Want: ">500", Got: ptr(102.8), Verdict: results.Fail, Reason: "too slow",
	})
	r.Warnings = []string{"load average was 3.1 on 2 cores"}
	return synthetic{r.RunDir, r}
}
