package checkers

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// overlapScript is a paused holder that outlives its validity and then overwrites the later one's write.
const overlapScript = `
run resource=register token=service
fault pause on=A hold=1 at=20 until=300
0 A acquire invoke
10 A acquire ok valid=110 issued=1 token=5
12 A effect-read ok
20 B acquire invoke
120 B acquire ok valid=1220 issued=119 token=7
125 B effect-read ok
310 A effect-write ok value=1
320 A release invoke
325 A release ok
400 B release invoke
405 B release ok
`

// lateScript is a holder that outlives its validity by 119 ms because its process stood still for 130 ms without a
// fault.
const lateScript = `
run resource=register token=service
0 A acquire invoke
10 A acquire ok valid=191 issued=1 token=5
12 A effect-read ok
20 B acquire invoke
200 B acquire ok valid=1220 issued=195 token=7
205 B effect-read ok
300 A stall info issued=130
310 A release invoke
325 A release ok
400 B release invoke
405 B release ok
`

const serialScript = `
run resource=register token=service
0 A acquire invoke
10 A acquire ok valid=1000 issued=1 token=5
12 A effect-write ok
20 A release invoke
25 A release ok
30 B acquire invoke
40 B acquire ok valid=1040 issued=31 token=7
45 B release invoke
47 B release ok
`

const scenarioText = `name: test-run
claim: What a test wants to see.
backend: {use: memory, lock: mutex, ttl: 10s}
workload: {use: counter, clients: 2, resource: {use: register}}
run: {for: 1s, seed: 7}
`

// runDir is a run directory made from a script.
type runDir struct {
	t        *testing.T
	dir      string
	script   *script
	env      results.Env
	scenario string
}

func newRunDir(t *testing.T, text, expect string) *runDir {
	t.Helper()
	s, err := parseScript(text)
	if err != nil {
		t.Fatal(err)
	}
	return &runDir{t: t, dir: t.TempDir(), script: s, scenario: scenarioText + expect, env: results.Env{
		Schema: results.EnvSchema, Run: "r", Scenario: "test-run", Seed: 7, Started: "2026-01-02T03:04:05Z", TTL: s.run.TTL, Token: s.run.Token,
		Expires: s.run.Expires, Recovery: s.run.Recovery, Workload: "counter", Resource: s.run.Resource, Replicas: s.run.Replicas, End: 1e9,
		Finished: true, Recovered: true, FinalRead: true, Provider: "none", Backend: "memory", Lock: "mutex",
	}}
}

// write writes all files of the run; each client's events go into its own.
func (d *runDir) write() {
	d.t.Helper()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(d.dir, results.DirHistory), 0o755))
	files := map[string]*history.Writer{}
	seq := map[string]uint32{}
	create := func(name string) {
		w, err := history.Create(filepath.Join(d.dir, results.DirHistory, name+".lqh"), history.Header{Process: name, Locks: d.script.run.Locks})
		must(err)
		files[name] = w
	}
	create("engine")
	for i, e := range d.script.events {
		name := history.ClientName(e.User.Client())
		switch e.Kind {
		case history.EffectRead, history.EffectWrite:
			name = "register"
		case history.Final, history.Dead:
			name = "engine"
		default:
		}
		if on := d.script.at[i]; on != "" {
			name = on
		}
		if files[name] == nil {
			create(name)
		}
		seq[name]++
		e.Seq = seq[name]
		if name != history.ClientName(e.User.Client()) {
			e.Op = e.Seq
		}
		must(files[name].Append(&e))
	}
	for _, w := range files {
		must(w.Close())
	}
	env, err := json.Marshal(d.env)
	must(err)
	must(os.WriteFile(filepath.Join(d.dir, results.FileEnv), env, 0o644))
	must(os.WriteFile(filepath.Join(d.dir, results.FileScenario), []byte(d.scenario), 0o644))
	var faults bytes.Buffer
	for _, f := range d.script.run.Faults {
		must(json.NewEncoder(&faults).Encode(f))
	}
	must(os.WriteFile(filepath.Join(d.dir, results.FileFaults), faults.Bytes(), 0o644))
}

// renumber restores the numbers that a script gives over all files of a client. Only clients keep their operations'
// numbers, so effects in the register's file must not take any of them.
func renumber(text string) string {
	var clients, others []string
	for _, l := range strings.Split(text, "\n") {
		if strings.Contains(l, " effect-") || strings.Contains(l, " final ") {
			others = append(others, l)
		} else {
			clients = append(clients, l)
		}
	}
	return strings.Join(append(clients, others...), "\n")
}

func judged(t *testing.T, d *runDir) results.Report {
	t.Helper()
	r, err := results.Judge(d.dir, All())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func prepared(t *testing.T, text, expect string, change func(*runDir)) *runDir {
	t.Helper()
	d := newRunDir(t, renumber(text), expect)
	if change != nil {
		change(d)
	}
	d.write()
	return d
}
