package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

const (
	ms    = int64(1_000_000)
	start = int64(5_000_000_000_000)
)

// world builds a run directory with real history files. Ids of operations are provisional until write sorts the
// events.
type world struct {
	t       *testing.T
	clients [][]history.Event
	effects []history.Event
	engine  []history.Event
	faults  []history.Fault
	env     results.Env
	value   int64
	seen    uint64 // the highest token, according to the refusing guard
}

func newWorld(t *testing.T, clients int) *world {
	return &world{t: t, clients: make([][]history.Event, clients), env: results.Env{
		Schema: results.EnvSchema, Run: "r1", Scenario: "synthetic", Seed: 42, Version: "dev", Started: "2025-01-02T03:04:05Z",
		Replay: "lockquake run synthetic --seed 42", Provider: "docker", ProviderReason: "an engine answers",
		Cluster: map[string]string{"engine": "20.10.24"}, Service: map[string]string{"etcd.version": "3.7.3"},
		Libraries: map[string]string{"go.etcd.io/etcd/client/v3": "v3.7.3"},
		Host:      map[string]string{"kernel": "6.18", "cores": "2"}, Timings: map[string]int64{"up": 2100, "first_grant": 2600, "load": 12000, "down": 300},
		Backend: "etcd", Lock: "mutex", TTL: 2000 * ms, Token: "service", Expires: true, Workload: "counter",
		Resource: "register", Guard: "none", Users: clients, Start: start, End: start + 12_000*ms, Finished: true,
	}}
}

// event adds one event of a client's user and returns its provisional id.
func (w *world) event(e history.Event) uint32 {
	c := e.User.Client()
	id := uint32(len(w.clients[c]) + 1)
	e.Seq = id
	if e.Op == 0 {
		e.Op = id
	}
	w.clients[c] = append(w.clients[c], e)
	return id
}

type grant struct {
	user  history.User
	op    uint32
	token uint64
	ref   results.HoldRef
}

// acquire asks at from ms and gets the lock at to ms.
func (w *world) acquire(u history.User, from, to float64, token uint64, ttl int64) *grant {
	op := w.event(history.Event{Time: at(from), User: u, Kind: history.Acquire, Phase: history.Invoke})
	issued := at(from)
	w.event(history.Event{
		Time: at(to), User: u, Kind: history.Acquire, Phase: history.Ok, Op: op, Grant: op, Token: token,
		Valid: issued + ttl*ms, Value: issued,
	})
	return &grant{user: u, op: op, token: token, ref: results.HoldRef{
		User: u, Grant: op, Issued: issued, Start: at(to), Valid: issued + ttl*ms, Token: token,
	}}
}

func at(t float64) int64 { return start + int64(t*float64(ms)) }

// access reads or writes at t ms; the resource acts at effect ms.
func (w *world) access(g *grant, k history.Kind, t, effect float64, value int64, phase history.Phase) {
	op := w.event(history.Event{Time: at(t), User: g.user, Kind: k, Phase: history.Invoke, Grant: g.op, Token: g.token, Value: value})
	code, eff := history.CodeNone, history.EffectRead
	if phase == history.Fail {
		code = history.CodeFenced
	}
	if k == history.Write {
		eff = history.EffectWrite
	}
	e := history.Event{Time: at(effect), User: g.user, Grant: g.op, Token: g.token, Kind: eff, Phase: phase, Code: code, Value: value}
	w.effects = append(w.effects, e)
	if phase == history.Fail {
		w.effects = append(w.effects, history.Event{
			Time: at(effect), User: g.user, Grant: g.op, Kind: history.Reason, Phase: history.Info, Code: history.CauseTokenLower, Token: w.seen,
		})
	}
	w.event(history.Event{Time: at(effect + 0.2), User: g.user, Kind: k, Phase: phase, Code: code, Op: op, Grant: g.op, Value: value})
}

func (w *world) release(g *grant, t float64, phase history.Phase, code uint8) {
	op := w.event(history.Event{Time: at(t), User: g.user, Kind: history.Release, Phase: history.Invoke, Grant: g.op})
	w.event(history.Event{Time: at(t + 1.3), User: g.user, Kind: history.Release, Phase: phase, Code: code, Op: op, Grant: g.op})
	g.ref.End = at(t)
}

// cycles fills a period with healthy holds of two users.
func (w *world) cycles(client int, from, to float64) {
	users := []history.User{history.MakeUser(client, 0), history.MakeUser(client, 1)}
	for i, t := 0, from; t+60 < to; i, t = i+1, t+55 {
		g := w.acquire(users[i%2], t-float64(10+i%7), t, uint64(1000+int(t)), 2000)
		w.value++
		w.access(g, history.Read, t+1, t+1.3, w.value-1, history.Ok)
		w.access(g, history.Write, t+45, t+45.4, w.value, history.Ok)
		w.release(g, t+50, history.Ok, 0)
	}
}

// write sorts the events by time, gives them their final numbers, and writes the run directory.
func (w *world) write(holds ...*grant) string {
	w.t.Helper()
	dir := w.t.TempDir()
	must(w.t, os.MkdirAll(filepath.Join(dir, results.DirHistory), 0o755))
	byTime := func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) }
	final := make([]map[uint32]uint32, len(w.clients))
	for c, events := range w.clients {
		slices.SortStableFunc(events, byTime)
		final[c] = map[uint32]uint32{0: 0}
		for i := range events {
			final[c][events[i].Seq] = uint32(i + 1)
		}
		for i := range events {
			e := &events[i]
			e.Seq, e.Op, e.Grant = uint32(i+1), final[c][e.Op], final[c][e.Grant]
		}
		w.file(dir, fmt.Sprintf("client-%d", c+1), events)
	}
	for name, events := range map[string][]history.Event{"register": w.effects, history.Engine: w.engine} {
		slices.SortStableFunc(events, byTime)
		for i := range events {
			e := &events[i]
			e.Seq, e.Op, e.Grant = uint32(i+1), uint32(i+1), final[e.User.Client()][e.Grant]
			if e.Kind == history.Reason {
				e.Op--
			}
		}
		w.file(dir, name, events)
	}
	for _, g := range holds {
		g.ref.Grant = final[g.user.Client()][g.ref.Grant]
	}
	writeFaults(w.t, dir, w.faults)
	w.logs(dir, 400)
	b, err := json.Marshal(w.env)
	must(w.t, err)
	must(w.t, os.WriteFile(filepath.Join(dir, results.FileEnv), b, 0o644))
	return dir
}

// logs writes histogram logs like the judge, of n acquires and releases.
func (w *world) logs(dir string, n int64) {
	w.t.Helper()
	must(w.t, os.MkdirAll(filepath.Join(dir, results.DirLatency), 0o755))
	for i, op := range results.Operations {
		f, err := os.Create(filepath.Join(dir, results.DirLatency, op+".hlog"))
		must(w.t, err)
		log := hdrhistogram.NewHistogramLogWriter(f)
		must(w.t, log.OutputLogFormatVersion())
		must(w.t, log.OutputLegend())
		for part := range int64(2) {
			h := hdrhistogram.New(1, longest, 3)
			for k := range n / 2 {
				must(w.t, h.RecordValue(int64(i+1)*5*ms+k*ms/50+part*int64(i)*ms))
			}
			must(w.t, h.RecordValue(int64(i+1)*20*ms+part*2000*ms))
			h.SetStartTimeMs(part * 5000)
			h.SetEndTimeMs(part*5000 + 5000)
			must(w.t, log.OutputIntervalHistogram(h))
		}
		must(w.t, f.Close())
	}
}

func (w *world) file(dir, name string, events []history.Event) {
	w.t.Helper()
	h, err := history.Create(filepath.Join(dir, results.DirHistory, name+".lqh"), history.Header{Process: name, Locks: []string{"lock-0"}})
	must(w.t, err)
	for i := range events {
		must(w.t, h.Append(&events[i]))
	}
	must(w.t, h.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFaults(t *testing.T, dir string, faults []history.Fault) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, results.FileFaults))
	must(t, err)
	for _, x := range faults {
		must(t, json.NewEncoder(f).Encode(x))
	}
	must(t, f.Close())
}
