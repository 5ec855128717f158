package compare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// swept returns a synthetic sweep: 1 to 64 users on one lock, with noise of 3 %. how changes a sample.
func swept(name string, samples int, how func(users int, s *capacity.Sample)) Sweep {
	out := Sweep{Dir: name, Sweep: capacity.Sweep{
		Schema: capacity.Schema, Scenario: "capacity", ScenarioText: "a scenario", Provider: "local", Measured: int64(3 * time.Second), Warm: 1e9, Seed: 1,
		Origin:  results.Origin{Version: name, Host: map[string]string{"os": "linux", "arch": "amd64", "kernel": "6.1", "cores": "8", "memory": "1"}},
		Service: map[string]string{"redis.version": name},
	}}
	rnd := seed.Rand(1, name)
	for n := 1; n <= 64; n *= 2 {
		p := capacity.Point{Setting: capacity.Setting{Backend: "redis", Lock: "set-px-lua", Nodes: 1, Locks: 1, TTL: int64(10 * time.Second), Users: n}}
		for range samples {
			x := capacity.USL{Lambda: 400, Sigma: 0.05, Kappa: 0.0002}.At(float64(n)) * math.Exp(0.03*rnd.NormFloat64())
			ms := 1e3 * float64(n) / x
			s := capacity.Sample{
				Verdict: "pass", Cycles: x, Cycle: ms, InService: float64(n), Cores: 8, CPU: map[string]float64{"clients": 0.1},
				Latency: map[string]float64{"p50": ms, "p99": 5 * ms * math.Exp(0.05*rnd.NormFloat64()), "max": 9 * ms},
			}
			if how != nil {
				how(n, &s)
			}
			p.Samples = append(p.Samples, s)
		}
		out.Points = append(out.Points, p)
	}
	return out
}

// slower slows a sample down by a factor, and keeps Little's law.
func slower(by float64, from int) func(int, *capacity.Sample) {
	return func(users int, s *capacity.Sample) {
		if users >= from {
			s.Cycles, s.Cycle = s.Cycles/by, s.Cycle*by
			for q := range s.Latency {
				s.Latency[q] *= by
			}
		}
	}
}

func sweepsOf(t *testing.T, a, b []Sweep, allow Allow) *SweepResult {
	t.Helper()
	r, err := OfSweeps(a, b, SweepFigures(known), allow)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// spoilt spoils all samples.
func spoilt(sweeps []Sweep) []Sweep {
	for _, p := range sweeps[0].Points {
		for i := range p.Samples {
			p.Samples[i].Spoilt = "the machine stood still"
		}
	}
	return sweeps
}

func holds(t *testing.T, r *SweepResult, text string) Answer {
	t.Helper()
	d, err := ParseDemands(text, SweepFigures(known), "")
	if err != nil {
		t.Fatal(err)
	}
	return r.Hold(d)[0]
}

// TestSweepDemands compares sweeps that are slower, faster, slower at one point only, equal, too few, and of another
// lock.
func TestSweepDemands(t *testing.T) {
	base, slow := []Sweep{swept("base", 6, nil)}, []Sweep{swept("slow", 6, slower(1.2, 1))}
	few := []Sweep{swept("few", 3, slower(1.2, 1))}
	broken := func(users int, s *capacity.Sample) {
		if users == 8 {
			s.Verdict = "fail"
		}
	}
	granting := func(twice int64, samples int) []Sweep { // one point has double grants, in as many of its samples
		n := 0
		return []Sweep{swept(fmt.Sprint("granting", twice, samples), 6, func(users int, s *capacity.Sample) {
			s.Counts = map[string]int64{"double_grants": 0}
			if users == 8 {
				if n++; n <= samples {
					s.Verdict, s.Counts["double_grants"] = "fail", twice
				}
			}
		})}
	}
	for name, c := range map[string]struct {
		a, b   []Sweep
		demand string
		want   results.Verdict
		says   string
	}{
		"slower":                   {base, slow, "throughput=5%", results.Fail, "at 7 of 7 points, the first with 1 user, redis set-px-lua, 1 member, 1 lock, TTL 10 s: the median of throughput_per_s is "},
		"later":                    {base, slow, "p99=5%", results.Fail, "7 points, the first with 1 user, "},
		"slower, which is allowed": {base, slow, "throughput=30%", results.Pass, "at each of 7 points"},
		"faster":                   {slow, base, "throughput=0%", results.Pass, "at each of 7 points"},
		"sooner":                   {slow, base, "p99=0%", results.Pass, ""},
		"one point":                {base, []Sweep{swept("one", 6, slower(1.2, 64))}, "throughput=5%", results.Fail, "at 1 of 7 points, the first with 64 users"},
		"too few":                  {few, []Sweep{swept("other", 3, nil)}, "throughput=5%", results.Unknown, "need >= 6 samples"},
		"too few on one side":      {base, few, "throughput=5%", results.Unknown, "with 6 and 3 samples p is at least 0.024, but a difference needs less than 0.0071"},
		"the same again":           {base, []Sweep{swept("again", 6, nil)}, "throughput=5%", results.Pass, ""},
		"two sweeps make one":      {base, []Sweep{few[0], swept("rest", 3, slower(1.2, 1))}, "throughput=5%", results.Fail, "at 7 of 7"},
		"no lock at one point":     {base, []Sweep{swept("broken", 6, broken)}, "throughput=5%", results.Unknown, "at 1 of 7 points, the first with 8 users, redis set-px-lua, 1 member, 1 lock, TTL 10 s: B: the verdict is fail in 6 of 6 runs"},
		"never granted twice":      {granting(0, 0), granting(0, 0), "double_grants", results.Pass, "at each of 7 points"},
		"granted twice, once": {
			granting(0, 0), granting(3, 1), "double_grants", results.Fail,
			"at 1 of 7 points, the first with 8 users, redis set-px-lua, 1 member, 1 lock, TTL 10 s: 1 of 6 runs have double_grants, before 0 of 6",
		},
		"granted twice before too":   {granting(1, 1), granting(1, 3), "double_grants", results.Pass, ""},
		"granted twice in all":       {granting(1, 1), granting(1, 6), "double_grants", results.Pass, ""}, // p is 0.015, of 7 points
		"granted twice where slow":   {granting(0, 0), granting(1, 6), "throughput=5%", results.Unknown, "B: the verdict is fail in 6 of 6 runs"},
		"counts of one group alone":  {base, granting(0, 0), "double_grants", results.Unknown, "double_grants was not judged in both groups"},
		"a spoilt sample counts too": {granting(0, 0), spoilt(granting(1, 1)), "double_grants", results.Fail, "1 of 6 runs have double_grants"},
		"not measured":               {base, slow, "p90=5%", results.Unknown, "acquire_p90_ms was not judged in both groups"},
		"the generator was the limit, and is slower": {base, []Sweep{swept("full", 6, func(n int, s *capacity.Sample) {
			slower(1.2, 1)(n, s)
			s.CPU["clients"] = 7.9
		})}, "throughput=5%", results.Fail, "at 7 of 7"},
		"a spoilt sample is no slower one": {base, []Sweep{swept("spoilt", 7, func() func(int, *capacity.Sample) {
			n := 0
			return func(_ int, s *capacity.Sample) {
				if n++; n%7 == 0 {
					s.Spoilt, s.Cycles = "the machine stood still", 1
				}
			}
		}())}, "throughput=5%", results.Pass, ""},
	} {
		got := holds(t, sweepsOf(t, c.a, c.b, Allow{}), c.demand)
		if got.Verdict != c.want || !strings.Contains(got.Reason, c.says) || got.Demand != c.demand {
			t.Errorf("%s: %+v, want %s: %s", name, got, c.want, c.says)
		}
	}
}

// TestEqualSweepsAreNotAccused: with seven points, one is below a P of 0.05 in every third comparison. The demand
// treats that as chance.
func TestEqualSweepsAreNotAccused(t *testing.T) {
	const rounds = 200
	accused, single := 0, 0
	for i := range rounds {
		a, b := swept(fmt.Sprint("a", i), 8, nil), swept(fmt.Sprint("b", i), 8, nil)
		for j := range 4 { // two curves, too short for a law: its bootstrap takes time
			a.Points[j].Locks, b.Points[j].Locks = 64, 64
		}
		r := sweepsOf(t, []Sweep{a}, []Sweep{b}, Allow{})
		if holds(t, r, "throughput=0%").Verdict == results.Fail {
			accused++
		}
		for _, p := range slices.Concat(r.Curves[0].Points, r.Curves[1].Points) {
			if f := p.Figures[0]; *f.P < Alpha && f.B.Median < f.A.Median {
				single++
				break
			}
		}
	}
	t.Logf("of %d comparisons %d are accused; %d have a point with p < %g", rounds, accused, single, Alpha)
	if accused > rounds*5/100 || single < rounds*8/100 {
		t.Errorf("of %d comparisons %d are accused; %d have a point with p < %g", rounds, accused, single, Alpha)
	}
}

// TestSweepsThatCannotBeCompared names the differences, and can be overruled if that makes sense.
func TestSweepsThatCannotBeCompared(t *testing.T) {
	each := func(how func(*capacity.Setting)) func(*Sweep) {
		return func(s *Sweep) {
			for i := range s.Points {
				how(&s.Points[i].Setting)
			}
		}
	}
	for want, change := range map[string]func(*Sweep){
		"a and b differ in their cores: 8 and 4; --allow machine":                              func(s *Sweep) { s.Host["cores"] = "4" },
		"lock: redis set-px-lua and redis setnx; --allow settings":                             each(func(s *capacity.Setting) { s.Lock = "setnx" }),
		"backend: redis and etcd; --allow settings":                                            each(func(s *capacity.Setting) { s.Backend, s.Lock = "etcd", "mutex" }),
		"provider: local and docker; --allow settings":                                         func(s *Sweep) { s.Provider = "docker" },
		"text of the scenario: a scenario and another; --allow settings":                       func(s *Sweep) { s.ScenarioText = "another" },
		"measured time: 3s and 1s; --allow settings":                                           func(s *Sweep) { s.Measured = 1e9 },
		"warm-up: 1s and 2s; --allow settings":                                                 func(s *Sweep) { s.Warm = 2e9 },
		"objective: none and p99 within 20 ms; --allow settings":                               func(s *Sweep) { s.Objective = &capacity.Objective{Quantile: 0.99, Most: 20e6} },
		"no point in common: only in A: redis set-px-lua, 1 member, 1 lock, TTL 10 s; only in": each(func(s *capacity.Setting) { s.TTL = 5e9 }),
		"no point in common: their users or rates differ":                                      each(func(s *capacity.Setting) { s.Users *= 100 }),
	} {
		a, b := swept("a", 3, nil), swept("b", 3, nil)
		change(&b)
		if _, err := OfSweeps([]Sweep{a}, []Sweep{b}, SweepFigures(known), Allow{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
		r, err := OfSweeps([]Sweep{a}, []Sweep{b}, SweepFigures(known), Allow{Machine: true, Settings: true})
		if strings.Contains(want, "users") {
			if err == nil {
				t.Errorf("%s: points with other users were compared", want)
			}
			continue
		}
		if err != nil || len(r.Curves) != 1 || len(r.Curves[0].Points) != 7 || len(r.Alone) != 0 {
			t.Errorf("%s: %+v, %v", want, r, err)
		}
	}
	other := swept("b", 3, nil)
	other.Host["kernel"] = "5.4"
	if _, err := OfSweeps([]Sweep{swept("a", 3, nil), other}, nil, SweepFigures(known), Allow{Machine: true}); err == nil || !strings.Contains(err.Error(), "group A: sweeps 1 and 2 are from different machines") {
		t.Error(err)
	}
	if _, err := OfSweeps(nil, nil, SweepFigures(known), Allow{}); err == nil {
		t.Error("nothing was compared")
	}
}

// TestAxesTellCurvesApart: if settings may differ, an axis with several values in a group still distinguishes curves.
func TestAxesTellCurvesApart(t *testing.T) {
	a, b := swept("a", 3, nil), swept("b", 3, nil)
	for _, p := range slices.Clone(a.Points) {
		p.Locks = 64
		a.Points = append(a.Points, p)
	}
	for i := range b.Points {
		b.Points[i].Locks, b.Points[i].Lock = 64, "setnx"
	}
	b.Points = b.Points[1:]
	r := sweepsOf(t, []Sweep{a}, []Sweep{b}, Allow{Settings: true})
	if len(r.Curves) != 1 || r.Curves[0].Setting.Locks != 64 || len(r.Curves[0].Points) != 6 {
		t.Errorf("%+v", r.Curves)
	}
	want := []string{"only in A: redis set-px-lua, 1 member, 1 lock, TTL 10 s", "only in A: 1 user, redis set-px-lua, 1 member, 64 locks, TTL 10 s"}
	if !slices.Equal(r.Alone, want) {
		t.Errorf("%q", r.Alone)
	}
	if r.Curves[0].Name != "redis set-px-lua, 1 member, 64 locks, TTL 10 s; in B redis setnx, 1 member, 64 locks, TTL 10 s" || math.Abs(r.Alpha-0.05/6) > 1e-12 {
		t.Errorf("%q, alpha %g", r.Curves[0].Name, r.Alpha)
	}
}

// objective adds an objective to a sweep, and open loops that keep it up to a rate.
func objective(s Sweep, keeps float64) Sweep {
	s.Objective, s.Confirm = &capacity.Objective{Quantile: 0.99, Most: 20e6}, 1
	for rate, ms := range map[float64]float64{keeps: 10, keeps * 1.04: 30} {
		p := capacity.Point{Setting: s.Points[len(s.Points)-1].Setting, Samples: []capacity.Sample{{Verdict: "pass", Offered: rate, Cycles: rate, Latency: map[string]float64{"p99": ms}}}}
		p.Rate = rate
		s.Points = append(s.Points, p)
	}
	return s
}

// TestTextOfSweeps has the points, each group's summary, the marks and the unmatched curves.
func TestTextOfSweeps(t *testing.T) {
	a := objective(swept("a", 6, nil), 5000)
	b := objective(swept("b", 6, func(n int, s *capacity.Sample) {
		slower(1.2, 1)(n, s)
		if n == 64 {
			s.CPU["clients"] = 7.9
		}
	}), 4000)
	b.Points = slices.DeleteFunc(b.Points, func(p capacity.Point) bool { return p.Users == 2 })
	for _, c := range []struct {
		b    []Sweep
		want []string
		not  []string
	}{
		{[]Sweep{b}, []string{
			"A: 1 sweep of capacity (redis set-px-lua, provider local); a\nB: 1 sweep", "redis.version: a in A, b in B", "lockquake: a in A, b in B",
			"users  figure            A                            B                            change   p\n1      throughput_per_s  398.7 (387.2 to 404.9), n=6  327.8 (321.1 to 345.9), n=6  -17.8 %  0.0022\n   ", "\n64*    throughput_per_s  ", "n=6     ~        0.026\n",
			"~ means no difference at p < 0.0083", "* with 64 users, B: the load generator was the limit: 7.90 of 8 cores used",
			"                     A                                   B\nbest throughput      5,080 (4,761 to 5,532)/s, 64 users  at least 3,923", "its limit            not known", "bends at             1", "highest at           ",
			"keeps the objective  5,000/s                             4,000/s", "only in A: 2 users, redis set-px-lua",
		}, []string{"too few", "5000 at", "NaN", "Inf"}},
		{nil, []string{"users       figure            A\n1           throughput_per_s  ", "keeps the objective  5,000/s\n", "5000/s"}, []string{"B:", "change", "~"}},
	} {
		r := sweepsOf(t, []Sweep{a}, c.b, Allow{})
		var out bytes.Buffer
		if err := r.Text(&out); err != nil {
			t.Fatal(err)
		}
		for _, text := range c.want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("no %q in\n%s", text, &out)
			}
		}
		for _, text := range c.not {
			if strings.Contains(out.String(), text) {
				t.Errorf("%q in\n%s", text, &out)
			}
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
	r := sweepsOf(t, []Sweep{swept("a", 3, nil)}, []Sweep{swept("b", 3, nil)}, Allow{})
	var out bytes.Buffer
	if err := r.Text(&out); err != nil || !strings.Contains(out.String(), "too few runs for a result: need >= 6 samples") || !strings.Contains(out.String(), "an interval needs 6") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestSettingsThatDiffer: if settings may differ, differing ones are named, with their side; of a text of several
// lines only the name is shown. Equal settings are left out.
func TestSettingsThatDiffer(t *testing.T) {
	other := swept("b", 1, nil)
	other.Provider, other.ScenarioText = "docker", "two\nlines"
	var out bytes.Buffer
	if err := sweepsOf(t, []Sweep{swept("a", 1, nil)}, []Sweep{other}, Allow{Settings: true}).Text(&out); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(out.String(), "\n\n")
	for _, want := range []string{"\nprovider: local in A, docker in B\n", "\ntext of the scenario: differs between A and B"} {
		if !strings.Contains(head, want) {
			t.Errorf("no %q in\n%s", want, head)
		}
	}
	if strings.Contains(head, "warm-up") || strings.Contains(head, "backend:") {
		t.Errorf("what is the same is told:\n%s", head)
	}
}

// TestBenchOfSweeps: benchstat's reader can read it; spoilt samples are left out.
func TestBenchOfSweeps(t *testing.T) {
	a, b := swept("a", 2, nil), objective(swept("b", 1, nil), 5000)
	a.Points[0].Samples[0].Spoilt = "the machine stood still"
	a.Points[1].Set, a.Points[1].Own = "workload.think=5ms backend.x=a/b", true
	var out bytes.Buffer
	if err := sweepsOf(t, []Sweep{a}, []Sweep{b}, Allow{Settings: true}).Bench(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	r, names := benchfmt.NewReader(&out, "sweeps"), map[string]int{}
	for r.Scan() {
		one, ok := r.Result().(*benchfmt.Result)
		if !ok {
			t.Fatalf("%v in\n%s", r.Result(), text)
		}
		names[one.GetConfig("group")+" "+one.Name.String()]++
		if v, ok := one.Value("throughput_per_s"); !ok || math.Abs(float64(one.Iters)-3*v) > 1 {
			t.Errorf("%v, %d iterations", one.Values, one.Iters)
		}
	}
	for name, n := range map[string]int{
		"A Capacity/backend=redis/lock=set-px-lua/nodes=1/locks=1/ttl=10s/users=1":                                        1,
		"A Capacity/backend=redis/lock=set-px-lua/nodes=1/locks=own/ttl=10s/set=workload.think=5ms_backend.x=a_b/users=2": 2,
		"B Capacity/backend=redis/lock=set-px-lua/nodes=1/locks=1/ttl=10s/users=64":                                       1,
		"B Capacity/backend=redis/lock=set-px-lua/nodes=1/locks=1/ttl=10s/rate=5000/users=64":                             1,
	} {
		if names[name] != n {
			t.Errorf("%s: %d times, want %d: %v", name, names[name], n, names)
		}
	}
	if r.Err() != nil {
		t.Error(r.Err())
	}
}
