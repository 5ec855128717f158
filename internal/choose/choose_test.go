package choose

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
)

var update = flag.Bool("update", false, "write the golden table anew")

// whole returns the catalog of this program.
func whole(t *testing.T) Catalog {
	t.Helper()
	stories, err := scenarios.Load("stories/*")
	if err != nil {
		t.Fatal(err)
	}
	c := Catalog{Stories: stories, Checkers: checkers.All()}
	for _, b := range all.All() {
		c.Backends = append(c.Backends, b.Backend)
	}
	return c
}

func rows(t *testing.T, names []string, quick bool) map[string]Row {
	t.Helper()
	list, err := whole(t).Rows(names, quick)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Row{}
	for _, r := range list {
		out[r.Backend+"/"+r.Lock] = r
	}
	return out
}

// TestRows: the locks compared by default are right and have servers; with quick, one lock of each topology.
func TestRows(t *testing.T) {
	every, quick := rows(t, nil, false), rows(t, nil, true)
	if len(every) < 20 {
		t.Errorf("%d rows", len(every))
	}
	served := 0
	for _, b := range all.All() {
		if first := b.Name + "/" + b.Locks[0].Name; !b.InProcess {
			if served++; quick[first].Lock == "" {
				t.Errorf("%s is not compared by --quick", first)
			}
		}
	}
	if len(quick) != served {
		t.Errorf("--quick compares %d locks of %d topologies", len(quick), served)
	}
	for name := range every {
		if strings.HasPrefix(name, "memory/") || strings.HasPrefix(name, "external/") || name == "redis/setnx" {
			t.Errorf("%s is compared unasked", name)
		}
	}
	if got := rows(t, []string{"redis/setnx", "etcd"}, false); len(got) != 2 || got["redis/setnx"].Lock == "" || got["etcd/mutex"].Token != "service" {
		t.Errorf("rows by name: %v", got)
	}
	if _, err := whole(t).Rows([]string{"etcd/none-such"}, false); !errors.Is(err, suite.ErrNoLock) {
		t.Errorf("a lock that there is not: %v", err)
	}
}

// TestBreaks: a lock is broken by its own stories, and by those in which its service breaks its promise to another
// lock.
func TestBreaks(t *testing.T) {
	every := rows(t, nil, false)
	for name, want := range map[string][]string{
		"sentinel/set-px-lua":     {"double_grants", "sentinel-lost-lock"},
		"sentinel/redsync":        {"double_grants", "sentinel-lost-lock"},
		"rediscluster/set-px-lua": {"double_grants", "cluster-lost-lock"},
		"redlock/redlock":         {"double_grants", "redlock-restart"},
		"etcd/mutex":              {"stale_writes", ""},
	} {
		b := every[name].Breaks
		if len(b) == 0 || b[0].Counts[0] != want[0] || want[1] != "" && !slices.ContainsFunc(b, func(x Breaks) bool { return x.Story == want[1] }) {
			t.Errorf("%s is broken by %v, want %v", name, b, want)
		}
	}
	for _, x := range every["sentinel/redsync"].Breaks {
		if x.Lock != "set-px-lua" && x.Lock != "set-px-incr" {
			t.Errorf("another lock's story does not say whose it is: %+v", x)
		}
	}
	for _, r := range every {
		if slices.ContainsFunc(r.Breaks, func(x Breaks) bool { return x.Story == "counter-on-five" }) {
			t.Error("a story of a wrong lock is told of another one")
		}
	}
}

// sample returns a usable sample.
func sample(rate, p50 float64) capacity.Sample {
	return capacity.Sample{Cycles: rate, Latency: map[string]float64{"p50": p50, "p99": 2 * p50}, Handoff: new(p50 / 4), Requests: new(2.0)}
}

// invented returns a result with everything that a table may show.
func invented() Result {
	spoilt := sample(1, 9999)
	spoilt.Spoilt = "the machine stood still"
	load := func(samples ...capacity.Sample) []Load {
		return []Load{{Locks: Few, Samples: samples}, {Locks: Many, Samples: samples[:1]}}
	}
	return Result{
		Schema: Schema, Origin: results.Origin{Version: "0.1.0", Command: "lockquake choose --seed 7"}, Seed: 7, Users: Users, Measured: int64(3 * time.Second), Repeat: 3,
		Rows: []Row{
			{
				Backend: "etcd", Lock: "mutex", Token: "service", Waits: true, Loads: load(sample(410, 78), sample(400, 80), spoilt, sample(420, 76)),
				Loss: &Loss{Target: "etcd-2", Bit: true, Gap: new(3140.0), Double: new(int64(0)), Verdict: results.Pass}, Breaks: []Breaks{
					{Story: "etcd-holder-pause", Counts: []string{"stale_writes", "lost_updates"}}, {Story: "session-check", Counts: []string{"stale_writes"}},
				},
			},
			{Backend: "redis", Lock: "set-px-lua", Token: "none", Loads: load(spoilt), Loss: &Loss{Target: "redis-1", Reasons: []string{"it did not die"}, Verdict: results.Unknown}},
			{Backend: "zookeeper", Lock: "sequential", Token: "service", Loads: []Load{{Locks: Few}, {Locks: Many}}, NotRun: "there is no java"},
		},
	}
}

// TestText: the table matches the golden file, and whatever is missing has a reason.
func TestText(t *testing.T) {
	var text, page bytes.Buffer
	r := invented()
	if err := errors.Join(r.Text(&text), r.Markdown(&page)); err != nil {
		t.Fatal(err)
	}
	got := text.String() + "\n" + page.String()
	file := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("the table is not that of %s (-update writes it): %v\n%s", file, err, got)
	}
}

// TestJobs: services come one after the other. The loads of a service's locks come in turn, its losses last.
func TestJobs(t *testing.T) {
	r := Run{Result: &Result{Repeat: 2, Measured: int64(time.Second)}}
	var list []Candidate
	for _, row := range []Row{{Backend: "redis", Lock: "a"}, {Backend: "redis", Lock: "b"}, {Backend: "etcd", Lock: "c"}} {
		list = append(list, Candidate{Row: row, loads: make([]scenarios.Scenario, len(loads))})
	}
	list = append(list, Candidate{Row: Row{Backend: "zookeeper", Lock: "d", NotRun: "there is no java"}})
	var got []string
	for _, j := range r.jobs(list) {
		got = append(got, list[j.row].Lock+string(rune('0'+j.load)))
	}
	if want := "a0 b0 a1 b1 a0 b0 a1 b1 a2 b2 c0 c1 c0 c1 c2"; strings.Join(got, " ") != want {
		t.Errorf("runs %v, want %s", got, want)
	}
	const each = warm + time.Second + time.Second
	if got, want := Takes(list, 2, time.Second, campaign.Cost{Start: 10 * time.Second, Beside: time.Second}), 20*time.Second+3*(4*each+warm+lossRun+time.Second); got != want {
		t.Errorf("it takes %v, want %v", got, want)
	}
}
