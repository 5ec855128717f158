package capacity

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/history"
)

func TestSweepComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	want := invented()
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A file that another program wrote, or that was edited, is refused in one line that says where.
func TestForeignSweepsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:   "unexpected end of JSON input",
		`{}`: `schema is ""; this program reads "lockquake/capacity/1"`,
		`[]`: "cannot unmarshal array",
		`{"schema":"lockquake/capacity/2","new":1}`:                                  `schema is "lockquake/capacity/2"`,
		`{"schema":"lockquake/capacity/1","new":1}`:                                  `unknown field "new"`,
		`{"schema":"lockquake/capacity/1"} {}`:                                       "invalid character '{' after top-level value",
		`{"schema":"lockquake/capacity/1","repeat":-1}`:                              "repeat -1",
		point(`"users":-1,"locks":1`, ``):                                            "point 0: -1 users: must be 1 to 1000000",
		point(`"users":1,"locks":2000000`, ``):                                       "2000000 locks",
		point(`"users":1,"locks":1,"rtt_ns":-1`, ``):                                 "rtt_ns is -1",
		point(`"users":1,"locks":1,"rate":-2`, ``):                                   "rate is -2",
		point(`"users":1,"locks":1,"rate":NaN`, ``):                                  "invalid character 'N'",
		point(`"users":1,"locks":1`, `{"cycles_per_s":-1}`):                          "point 0: sample 0: cycles_per_s is -1",
		point(`"users":1,"locks":1`, `{"cycles_per_s":1e300}`):                       "cycles_per_s is 1e+300",
		point(`"users":1,"locks":1`, `{"cycles_per_s":"fast"}`):                      "cannot unmarshal string",
		point(`"users":1,"locks":1`, `{"handoff_ms":-1}`):                            "handoff_ms is -1",
		point(`"users":1,"locks":1`, `{"latency_ms":{"p99":-1}}`):                    "latency_ms p99 is -1",
		point(`"users":1,"locks":1`, `{"cpu":{"clients":-1}}`):                       "cpu clients is -1",
		point(`"users":1,"locks":1`, `{"counts":{"double_grants":-1}}`):              "counts double_grants is -1",
		point(`"users":1,"locks":1`, strings.Repeat(`{},`, 1000)+`{}`):               "1001 samples",
		point(`"users":1,"locks":1,"backend":"`+strings.Repeat("x", 501)+`"`, ``):    "is too long",
		`{"schema":"lockquake/capacity/1","objective":{"quantile":1.5,"most_ns":1}}`: "objective: quantile 1.5",
		`{"schema":"lockquake/capacity/1","left":[{"users":0,"locks":1,"why":""}]}`:  "left 0: 0 users",
	} {
		path := filepath.Join(t.TempDir(), File)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Read(path)
		if !errors.Is(err, history.ErrCorrupt) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80s: %v; want %q", text, err, want)
		}
	}
	if _, err := Read(t.TempDir()); !errors.Is(err, history.ErrCorrupt) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), File)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	s := invented()
	s.Points[0].Samples[0].Cycles = math.NaN()
	if err := Write(filepath.Join(t.TempDir(), File), s); err == nil {
		t.Error("a NaN was written")
	}
}

// Points that were left out count too.
func TestTheLargestSweep(t *testing.T) {
	var s Sweep
	s.Schema = Schema
	for i := range MostPoints {
		of := Setting{Backend: "etcd", Users: i + 1, Locks: 1}
		if i%2 == 0 {
			s.Points = append(s.Points, Point{Setting: of})
		} else {
			s.Left = append(s.Left, Left{of, "the budget of 10m0s"})
		}
	}
	path := filepath.Join(t.TempDir(), File)
	if err := Write(path, s); err != nil {
		t.Error(err)
	}
	s.Points = append(s.Points, Point{Setting: Setting{Backend: "etcd", Users: 1, Locks: 2}})
	if err := Write(path, s); err == nil {
		t.Error("a sweep of one point too many was written")
	}
}

func point(setting, samples string) string {
	return `{"schema":"lockquake/capacity/1","points":[{` + setting + `,"samples":[` + samples + `]}]}`
}

func TestMerge(t *testing.T) {
	a, b := invented(), invented()
	for i := range b.Points {
		b.Points[i].Backend += "-other"
	}
	a.Left = append(a.Left, Left{b.Points[0].Setting, "the budget of 10m was over"})
	b.Points, b.Service = append(b.Points, a.Points[0]), map[string]string{"redis": "8.2.1"}
	m, err := Merge(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Points) != 2*len(a.Points) || len(m.Points[0].Samples) != 2*len(a.Points[0].Samples) || len(m.Left) != len(a.Left)-1+len(b.Left) {
		t.Errorf("%d points, the first with %d samples, %d left", len(m.Points), len(m.Points[0].Samples), len(m.Left))
	}
	if m.Service["redis"] != "8.2.1" || m.Service["etcd.version"] != a.Service["etcd.version"] || m.Scenario != a.Scenario || m.check() != nil {
		t.Errorf("%v %q %v", m.Service, m.Scenario, m.check())
	}
	if d := cmp.Diff(a, func() Sweep { s := invented(); s.Left = a.Left; return s }()); d != "" {
		t.Errorf("merging changed what was merged: %s", d)
	}
	for want, change := range map[string]func(*Sweep){
		"sweeps 1 and 2 are from different machines: kernel":        func(s *Sweep) { s.Host = map[string]string{"os": "linux", "kernel": "5.4"} },
		"sweeps 1 and 2 have different objectives":                  func(s *Sweep) { s.Objective = nil },
		"sweeps 1 and 2 differ: providers local and d":              func(s *Sweep) { s.Provider = "docker" },
		"sweeps 1 and 2 have points of the same name but different": func(s *Sweep) { s.ScenarioText = "another scenario" },
	} {
		c := invented()
		change(&c)
		if _, err := Merge(a, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Merge(); err == nil {
		t.Error("nothing was merged")
	}
}
