package capacity

import (
	"bytes"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/results"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file in testdata, which all are of the invented sweep.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s: %s\nif this is meant: go test ./results/capacity -update", path, d)
	}
}

func TestTextOfTheInventedSweep(t *testing.T) {
	var b bytes.Buffer
	if err := Text(&b, Analyse(invented())); err != nil {
		t.Fatal(err)
	}
	golden(t, "invented.txt", b.Bytes())
	answers := 0
	for _, answer := range regexp.MustCompile(`(?ms)^ +(?:users|offered/s) [^\n]* limit$.*?^  (?:bounds|the tail)`).FindAllString(b.String(), -1) {
		answers++
		for line := range strings.Lines(answer) { // without line breaks, in a narrow terminal
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > 80 {
				t.Errorf("%d columns: %s", n, line)
			}
		}
	}
	if answers != 5 {
		t.Errorf("%d tables have the columns of the answer", answers)
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Unknown figures are named as such, never shown as a number.
func TestTextOfAnEmptySweep(t *testing.T) {
	for name, s := range map[string]Sweep{
		"nothing": {Schema: Schema},
		"left":    {Schema: Schema, Left: []Left{{Setting{Backend: "etcd", Lock: "mutex", Users: 1, Locks: 1}, "the budget was over"}}},
		"spoilt": {Schema: Schema, Points: []Point{{
			Setting: Setting{Backend: "etcd", Lock: "mutex", Users: 1, Locks: 1}, Samples: []Sample{{Spoilt: "the machine stood still", Cycles: 12345}},
		}}},
	} {
		var b bytes.Buffer
		if err := Text(&b, Analyse(s)); err != nil {
			t.Fatal(err)
		}
		if odd := regexp.MustCompile(`NaN|Inf|12,?345`).FindString(b.String()); odd != "" {
			t.Errorf("%s: %q in\n%s", name, odd, &b)
		}
		if name != "nothing" && !strings.Contains(b.String(), "known") && !strings.Contains(b.String(), "no closed loop was measured") {
			t.Errorf("%s:\n%s", name, &b)
		}
	}
}

func TestPlansAreRoundedDown(t *testing.T) {
	for f, want := range map[float64]float64{3579: 3500, 35: 35, 351: 350, 0: 0, 9.99: 9.9, 1000: 1000} {
		if got := round(f); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%g is rounded to %g, want %g", f, got, want)
		}
	}
}

// Each sentence of a paragraph, with and without its figure.
func TestParagraphs(t *testing.T) {
	loops := func(change func(users int, s *Sample)) Sweep {
		s := Sweep{Schema: Schema, Origin: results.Origin{Host: map[string]string{"cores": "2"}}, Measured: 2e9, Objective: &Objective{0.99, 20e6}, Confirm: 1}
		for _, n := range swept {
			one := closed(Setting{Users: int(n), Locks: 64}, laws["parallel"].At(n))
			one.Cores, one.Handoff, one.Requests = 8, nil, nil
			change(int(n), &one)
			s.Points = append(s.Points, Point{Setting: Setting{Backend: "zookeeper", Lock: "curator", Users: int(n), Locks: 64}, Samples: []Sample{one}})
		}
		return s
	}
	none := func(int, *Sample) {}
	rate := func(s Sweep, rate, ms float64) Sweep {
		one := Sample{Offered: rate, Cycles: rate, Latency: map[string]float64{"p99": ms}}
		s.Points = append(s.Points, Point{Setting: Setting{Backend: "zookeeper", Lock: "curator", Users: 99, Locks: 64, Rate: rate}, Samples: []Sample{one}})
		return s
	}
	late := func(s Sweep) Sweep { // one more run, whose latency is 172 ms because its generator lagged
		at := &s.Points[len(s.Points)-1]
		at.Samples = append(at.Samples, Sample{Offered: at.Rate, Cycles: at.Rate, Late: 60, Latency: map[string]float64{"p99": 172}})
		return s
	}
	for want, s := range map[string]Sweep{
		"zookeeper curator: 5,165 cycles/s over 64 locks (64 users); the limit is not known (nearest: the servers' CPU, 56 % of the cores): more --users would show it; it bends at 13 users and is highest at 69 users": loops(none),
		"; plan for at most 990 acquires/s at p99 within 20 ms.": rate(rate(loops(none), 999, 19), 1040, 21),
		"; no rate was confirmed for p99 within 20 ms: 999/s kept it in 1 of 1 run, and no rate between it and 2,000/s was tried: give it more time with --budget": rate(rate(loops(none), 999, 19), 2000, 21),
		"; no rate was confirmed for p99 within 20 ms: 999/s kept it in 1 of 1 run, and no failing rate was found: give it more time with --budget":                rate(loops(none), 999, 19),
		"; no rate was confirmed for p99 within 20 ms: 1 run of 999/s, the lowest rate tried, did not keep it: allow more than p99 within 20 ms with --slo":        rate(loops(none), 999, 21),
		"; no rate was confirmed for p99 within 20 ms: 680/s kept it in 1 of 2 runs (1 with a late generator), and no failing rate was found: ":                    late(rate(loops(none), 680, 19)),
		"; no rate was confirmed for p99 within 20 ms: no rate was tried: give it more time with --budget":                                                         loops(none),
		"; no search for a rate to plan for: set --slo p99=20ms":                                                                                                   func() Sweep { s := loops(none); s.Objective = nil; return s }(),
		"Measured with servers elsewhere, clients on one machine of 2 cores":                                                                                       func() Sweep { s := loops(none); s.Attached = true; return s }(),
		"no usable measurement over 64 locks; no rate was confirmed":                                                                                               loops(func(_ int, s *Sample) { s.CPU["clients"] = 8 }),
		"curator: at least 5,165 cycles/s over 64 locks (64 users)": loops(func(n int, s *Sample) {
			if n > 64 {
				s.CPU["clients"] = 8
			}
		}),
		"no closed loop was measured; ": rate(Sweep{Schema: Schema}, 10, 10),
	} {
		a := Analyse(s)
		if got := a.Paragraphs(); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
}

// Of three curves, the one without a usable point is left out of the limit and the knee, but not of the plan.
func TestParagraphOfSeveralCurves(t *testing.T) {
	s := invented()
	s.Left = nil
	s.Points = slices.DeleteFunc(s.Points, func(p Point) bool { return p.Backend != "etcd" })
	for _, p := range slices.Clone(s.Points) {
		if p.Locks == 1 {
			p.Locks, p.Samples = 8, slices.Clone(p.Samples)
			for i := range p.Samples {
				p.Samples[i].Spoilt = "the machine stood still"
			}
			s.Points = append(s.Points, p)
		}
	}
	got := Analyse(s).Paragraphs()
	want := regexp.MustCompile(`cycles/s on one lock \(\d+ users\), no usable measurement over 8 locks and [\d,]+ cycles/s over 64 locks .*; ` +
		`on one lock it bends at 2 users.*, over 64 locks it bends at 21 users.*; on one lock plan for .*, over 8 locks no rate was confirmed for .*, over 64 locks plan for`)
	if len(got) != 1 || !want.MatchString(got[0]) || strings.Contains(got[0], "over 8 locks it bends") {
		t.Errorf("%q", got)
	}
}

func TestUsersOfARange(t *testing.T) {
	f := Fit{To: 128}
	for want, r := range map[string]Range{
		"29 users (25 to 34)":             {29, 25.2, 34.4},
		"2 users":                         {2.1, 1.9, 2.3},
		"100 users (80 to more than 128)": {100, 80, math.Inf(1)},
		"":                                {129, 80, 300},
	} {
		if got := f.users(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
