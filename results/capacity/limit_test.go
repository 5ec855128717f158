package capacity

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func ptr(f float64) *float64 { return &f }

// calm returns a sample of 8 users on one lock without a known limit: the lock is in use for half of the time.
func calm() Sample {
	return Sample{
		Verdict: "pass", Cycles: 200, Cycle: 40, HoldMean: 1, Handoff: ptr(1.5), InService: 8, Requests: ptr(3), RTT: ptr(0.2),
		Latency: map[string]float64{"p50": 30, "p99": 60}, CPU: map[string]float64{"servers": 0.3, "clients": 0.1, "supervisor": 0.1}, Cores: 2, Fsync: ptr(1),
	}
}

// Each candidate by itself, and a near miss of it.
func TestLimits(t *testing.T) {
	const one = 50 // cycles/s of one user alone: 8 would do 400
	for name, c := range map[string]struct {
		change func(*Setting, *Sample)
		want   Cause
		says   string
	}{
		"none":                                         {func(*Setting, *Sample) {}, Unknown, "nearest: the per-lock ceiling, 50 % of it"},
		"clients' CPU":                                 {func(_ *Setting, s *Sample) { s.CPU["clients"] = 1.4 }, Generator, "1.80 of 2 cores used: 0.30 by servers, 1.40 by clients, 0.10 by supervisor"},
		"clients' CPU, nearly":                         {func(_ *Setting, s *Sample) { s.CPU["clients"] = 1.39 }, Unknown, ""},
		"supervisor's CPU":                             {func(_ *Setting, s *Sample) { s.CPU["supervisor"] = 1.5 }, Generator, "1.50 by supervisor"},
		"generator and servers in equal parts":         {func(_ *Setting, s *Sample) { s.CPU["servers"], s.CPU["clients"] = 1, 0.9 }, Generator, "2.00 of 2 cores"},
		"servers' CPU":                                 {func(_ *Setting, s *Sample) { s.CPU["servers"] = 1.6 }, Processor, "1.80 of 2 cores used: 1.60 by servers"},
		"servers' CPU, nearly":                         {func(_ *Setting, s *Sample) { s.CPU["servers"] = 1.59 }, Unknown, ""},
		"all in one process":                           {func(_ *Setting, s *Sample) { s.CPU = map[string]float64{"supervisor": 1.8} }, Machine, "1.80 of 2 cores used: 1.80 by supervisor, whose process contains the servers and clients"},
		"servers elsewhere":                            {func(_ *Setting, s *Sample) { s.CPU = map[string]float64{"supervisor": 0.1, "clients": 1.8} }, Generator, "1.90 of 2 cores used: 1.80 by clients, 0.10 by supervisor"},
		"the resource fills the machine":               {func(_ *Setting, s *Sample) { s.CPU["resource"] = 1.3 }, Generator, "1.30 by resource"},
		"the supervisor's host is full":                {func(_ *Setting, s *Sample) { s.Host, s.CPU = "a", map[string]float64{"supervisor": 1.8} }, Generator, "1.80 of 2 cores used on a: 1.80 by supervisor"},
		"own locks":                                    {func(p *Setting, s *Sample) { p.Own = true; s.Handoff = ptr(3.25) }, Unknown, ""},
		"no CPU was read":                              {func(_ *Setting, s *Sample) { s.CPU = nil }, Unknown, ""},
		"cores are not known":                          {func(_ *Setting, s *Sample) { s.CPU["servers"], s.Cores = 9, 0 }, Unknown, ""},
		"the packet queue":                             {func(_ *Setting, s *Sample) { s.Packets = ptr(19_800) }, Emulation, "19,800 packets/s; the packet queue certainly handles 22,000"},
		"the packet queue, nearly":                     {func(_ *Setting, s *Sample) { s.Packets = ptr(19_700) }, Unknown, ""},
		"one lock is always busy":                      {func(_ *Setting, s *Sample) { s.Handoff = ptr(3.25) }, Serial, "200 cycles/s of at most 235.3: 1 lock / (hold 1 ms + handoff 3.25 ms)"},
		"one lock, nearly":                             {func(_ *Setting, s *Sample) { s.Handoff = ptr(3.2) }, Unknown, ""},
		"two locks":                                    {func(p *Setting, s *Sample) { p.Locks = 2; s.Handoff = ptr(3.25) }, Unknown, ""},
		"nobody waited":                                {func(_ *Setting, s *Sample) { s.Handoff = nil }, Unknown, ""},
		"fsync in a handoff":                           {func(_ *Setting, s *Sample) { s.Handoff, s.Fsync = ptr(3.25), ptr(1.7) }, Fsync, "1 × fsync of 1.70 ms is 52 % of the handoff, 3.25 ms"},
		"fsync in a handoff, nearly":                   {func(_ *Setting, s *Sample) { s.Handoff, s.Fsync = ptr(3.25), ptr(1.6) }, Serial, ""},
		"fsync in a mean handoff":                      {func(_ *Setting, s *Sample) { s.Handoff, s.HandoffMean, s.Fsync = ptr(1.5), ptr(3.5), ptr(1.8) }, Fsync, "1 × fsync of 1.80 ms is 51 % of the handoff, 3.50 ms"},
		"fsync in a cycle":                             {func(_ *Setting, s *Sample) { s.Fsync = ptr(9.8) }, Fsync, "2 × fsync of 9.80 ms is 50 % of the cycle without the hold, 39 ms"},
		"fsync in a cycle, nearly":                     {func(_ *Setting, s *Sample) { s.Fsync = ptr(9.7) }, Unknown, ""},
		"fsync of something else":                      {func(_ *Setting, s *Sample) { s.Fsync = ptr(40) }, Unknown, ""},
		"distance":                                     {func(_ *Setting, s *Sample) { s.RTT = ptr(10.5) }, Distance, "3 round trips of 10.5 ms are 81 % of the cycle without the hold, 39 ms"},
		"distance, nearly":                             {func(_ *Setting, s *Sample) { s.RTT = ptr(10.3) }, Unknown, ""},
		"distance that was only asked":                 {func(p *Setting, s *Sample) { p.RTT = int64(12 * time.Millisecond); s.RTT = nil }, Distance, "3 round trips of 12 ms"},
		"requests that went side by side":              {func(_ *Setting, s *Sample) { s.RTT, s.Requests = ptr(10.5), ptr(5) }, Unknown, ""},
		"requests that a script made, in a slow cycle": {func(_ *Setting, s *Sample) { s.RTT, s.Requests = ptr(9.5), ptr(4) }, Unknown, ""},
		"requests that a script made": {func(_ *Setting, s *Sample) {
			s.Cycles, s.Cycle, s.Handoff, s.RTT, s.Requests = 361, 22.2, nil, ptr(10), ptr(4)
		}, Distance, "2 round trips of 10 ms are 94 % of the cycle without the hold, 21.2 ms (the servers counted 4 requests)"},
		"many trips fit into any cycle": {func(_ *Setting, s *Sample) {
			s.Cycles, s.Cycle, s.Handoff, s.RTT, s.Requests = 361, 22.2, nil, ptr(5), ptr(9)
		}, Users, ""},
		"requests that nobody counted": {func(_ *Setting, s *Sample) {
			s.Cycles, s.Cycle, s.Handoff, s.RTT, s.Requests = 361, 22.2, nil, ptr(10), nil
		}, Distance, "2 round trips of 10 ms are 94 % of the cycle without the hold, 21.2 ms (one for the acquire and one for the release: requests were not counted)"},
		"requests that nobody counted, many": {func(_ *Setting, s *Sample) {
			s.Cycles, s.Cycle, s.Handoff, s.RTT, s.Requests = 361, 22.2, nil, ptr(5), nil
		}, Users, ""},
		"requests that nobody counted, on one machine": {func(_ *Setting, s *Sample) {
			s.Cycles, s.Cycle, s.HoldMean, s.Handoff, s.RTT, s.Requests = 361, 22.2, 22.05, nil, ptr(0.07), nil
		}, Users, ""},
		"requests that nobody counted, beside others": {func(_ *Setting, s *Sample) { s.RTT, s.Requests = ptr(35), nil }, Unknown, ""},
		"a handoff that is no mean":                   {func(_ *Setting, s *Sample) { s.Handoff = ptr(5) }, Unknown, ""},
		"users":                                       {func(_ *Setting, s *Sample) { s.Cycles, s.Cycle, s.Handoff = 361, 22.2, nil }, Users, "361 cycles/s, compared with 400 if 8 users were each as fast as one alone (50/s)"},
		"users, and one who was slow alone":           {func(_ *Setting, s *Sample) { s.Cycles, s.Cycle, s.Handoff = 510, 15.7, nil }, Unknown, ""},
		"users, nearly":                               {func(_ *Setting, s *Sample) { s.Cycles, s.Cycle, s.Handoff = 359, 22.2, nil }, Unknown, ""},
		"an open loop":                                {func(p *Setting, s *Sample) { p.Rate, s.Offered = 200, 200 }, Offered, "200 of 200 offered per second were served"},
		"an open loop that is full":                   {func(p *Setting, s *Sample) { p.Rate, s.Offered, s.Cycles = 210, 210, 203 }, Unknown, ""},
		"a generator that lags":                       {func(p *Setting, s *Sample) { p.Rate, s.Offered, s.Late = 200, 200, 2.1 }, Generator, "it began arrivals 2.10 ms late (p99); 2 ms is allowed"},
		"a generator that lags a little":              {func(p *Setting, s *Sample) { p.Rate, s.Offered, s.Late = 200, 200, 2 }, Offered, ""},
		"a server's one thread":                       {func(_ *Setting, s *Sample) { s.Busiest, s.ServerCores = ptr(0.91), 1 }, Processor, "the busiest server used 0.91 of at most 1 cores"},
		"a server's one thread, nearly":               {func(_ *Setting, s *Sample) { s.Busiest, s.ServerCores = ptr(0.89), 1 }, Unknown, ""},
		"a server with many threads":                  {func(_ *Setting, s *Sample) { s.Busiest = ptr(1.2) }, Unknown, ""},
		"a server's limit": {func(_ *Setting, s *Sample) {
			s.CPU["clients"], s.Busiest, s.ServerCores = 1.5, ptr(0.19), 0.2
		}, Processor, "0.19 of at most 0.2 cores"},
		"other programs":                  {func(_ *Setting, s *Sample) { s.Machine = ptr(1.8) }, Others, "1.80 of 2 cores in use, 1.30 of them by programs outside of the runs"},
		"other programs, nearly":          {func(_ *Setting, s *Sample) { s.Machine = ptr(1.79) }, Unknown, ""},
		"few other programs, and servers": {func(_ *Setting, s *Sample) { s.CPU["servers"], s.Machine = 1.3, ptr(1.95) }, Processor, "1.50 of 2 cores used: 1.30 by servers, 0.10 by clients, 0.10 by supervisor; 1.95 in use on the whole machine"},
		"few other programs, and clients": {func(_ *Setting, s *Sample) { s.CPU["clients"], s.Machine = 1.1, ptr(1.8) }, Generator, "1.80 in use on the whole machine"},
		"few other programs, nearly":      {func(_ *Setting, s *Sample) { s.CPU["clients"], s.Machine = 1.1, ptr(1.79) }, Unknown, ""},
		"other programs, and a busy lock": {func(_ *Setting, s *Sample) { s.Machine, s.Handoff = ptr(2), ptr(3.25) }, Serial, ""},
		"a mean of the handoffs":          {func(_ *Setting, s *Sample) { s.HandoffMean = ptr(3.5) }, Serial, "200 cycles/s of at most 222.2: 1 lock / (hold 1 ms + handoff 3.50 ms)"},
		"a mean that the median hides":    {func(_ *Setting, s *Sample) { s.Handoff, s.HandoffMean = ptr(3.5), ptr(1) }, Unknown, ""},
		"nobody waited, by the mean":      {func(_ *Setting, s *Sample) { s.Handoff, s.HandoffMean = nil, ptr(4) }, Unknown, ""},
		"generator and lock":              {func(_ *Setting, s *Sample) { s.CPU["clients"], s.Handoff = 1.6, ptr(4) }, Generator, ""},
		"servers' CPU and lock":           {func(_ *Setting, s *Sample) { s.CPU["servers"], s.Handoff = 1.6, ptr(4) }, Processor, ""},
	} {
		p := Point{Setting: Setting{Backend: "etcd", Lock: "mutex", Users: 8, Locks: 1}, Samples: []Sample{calm()}}
		c.change(&p.Setting, &p.Samples[0])
		r := read(p, 0)
		r.judge(one, &Objective{0.99, int64(20 * time.Millisecond)})
		if r.Limit.Cause != c.want || !strings.Contains(r.Limit.Evidence, c.says) {
			t.Errorf("%s: %q: %s; want %q: %s", name, r.Limit.Cause, r.Limit.Evidence, c.want, c.says)
		}
		if spoils := c.want == Generator || c.want == Emulation; spoils != (len(r.Marks) > 0) {
			t.Errorf("%s: marks %q", name, r.Marks)
		}
	}
}

// If no cause is near enough to be named, the nearest one is shown, and the point is fitted as before.
func TestTheNearestCause(t *testing.T) {
	for want, change := range map[string]func(*Setting, *Sample){
		"not known (nearest: the load generator, 86 % of the cores): run the clients on a less busy machine, or use more --users":                      func(_ *Setting, s *Sample) { s.CPU["clients"] = 1.32 },
		"not known (nearest: the servers' CPU, 86 % of the cores): more --users would show it":                                                         func(_ *Setting, s *Sample) { s.CPU["servers"] = 1.52 },
		"not known (nearest: the servers' CPU, 88 % of capacity of one server): more --users would show it":                                            func(_ *Setting, s *Sample) { s.CPU["clients"], s.Busiest, s.ServerCores = 1.32, ptr(0.88), 1 },
		"not known (nearest: the servers' fsync, 46 % of the cycle without the hold): more --users would show it":                                      func(_ *Setting, s *Sample) { s.Fsync = ptr(9) }, // half is enough
		"not known (nearest: the per-lock ceiling, 50 % of it): more --users would show it":                                                            func(*Setting, *Sample) {},
		"not known (nearest: the number of users, 50 % of their rates alone): more --users would show it":                                              func(_ *Setting, s *Sample) { s.Handoff = nil },
		"not known (nearest: the network's distance, 77 % of the cycle without the hold): more --users would show it":                                  func(_ *Setting, s *Sample) { s.RTT = ptr(10) },
		"not known (nearest: the emulation of the network, 82 % of its certain capacity): run the clients on a less busy machine, or use more --users": func(_ *Setting, s *Sample) { s.Packets = ptr(18_000) },
		"not known (nearest: the rate that was offered, 95 % of it): more --users would show it":                                                       func(p *Setting, s *Sample) { p.Rate, s.Offered = 210, 210 },
		"not known (nearest: other programs on the machine, 88 % of the cores): run the clients on a less busy machine, or use more --users":           func(_ *Setting, s *Sample) { s.Machine = ptr(1.76) },
		"not known (nearest: the machine's CPU, 85 % of the cores): run the clients on a less busy machine, or use more --users":                       func(_ *Setting, s *Sample) { s.CPU = map[string]float64{"supervisor": 1.7} },
		"the load generator": func(_ *Setting, s *Sample) { s.CPU["clients"] = 1.4 },
		"not known: more --users would show it": func(_ *Setting, s *Sample) {
			*s = Sample{Verdict: "pass", Cycles: 510, Cycle: 15.7, InService: 8, Fsync: ptr(20)} // each too high
		},
	} {
		p := Point{Setting: Setting{Backend: "etcd", Lock: "mutex", Users: 8, Locks: 1}, Samples: []Sample{calm()}}
		change(&p.Setting, &p.Samples[0])
		r := read(p, 0)
		r.judge(50, nil)
		if got := r.Limit.String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if fitted := len(r.Marks) == 0; fitted != (want != string(Generator)) {
			t.Errorf("%s: marks %q", want, r.Marks)
		}
	}
}

func TestLittlesLaw(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(*Setting, *Sample)
		violated bool
		known    bool
	}{
		"holds":                     {func(*Setting, *Sample) {}, false, true},
		"holds within a tenth":      {func(_ *Setting, s *Sample) { s.InService = 8.7 }, false, true},
		"too many":                  {func(_ *Setting, s *Sample) { s.InService = 8.9 }, true, true},
		"too few":                   {func(_ *Setting, s *Sample) { s.InService = 7.1 }, true, true},
		"users that did not cycle":  {func(_ *Setting, s *Sample) { s.InService, s.Cycles = 0, 100 }, true, true},
		"more in service than are":  {func(_ *Setting, s *Sample) { s.InService, s.Cycles = 10, 250 }, true, true},
		"nobody counted":            {func(_ *Setting, s *Sample) { s.InService = 0 }, false, true},
		"an open loop is not users": {func(p *Setting, s *Sample) { p.Rate, s.InService = 100, 8 }, false, true},
		"an open loop, not counted": {func(p *Setting, s *Sample) { p.Rate, s.InService = 100, 0 }, false, false},
		"nothing was done":          {func(_ *Setting, s *Sample) { s.Cycles = 0 }, false, false},
	} {
		p := Point{Setting: Setting{Users: 8, Locks: 1}, Samples: []Sample{calm()}}
		c.change(&p.Setting, &p.Samples[0])
		r := read(p, 0)
		r.judge(50, nil)
		if r.Little.Violated != c.violated || r.Little.Known != c.known {
			t.Errorf("%s: %+v", name, r.Little)
		}
		if marked := len(r.Marks) > 0; marked != c.violated {
			t.Errorf("%s: marks %q", name, r.Marks)
		}
	}
}

// TestLittlesLawSampleBySample: on a busy machine two samples differ widely, and the law holds in each of them.
func TestLittlesLawSampleBySample(t *testing.T) {
	fast, slow := calm(), calm()
	fast.Cycles, fast.Cycle, slow.Cycles, slow.Cycle = 800, 10, 100, 80
	r := read(Point{Setting: Setting{Users: 8, Locks: 1}, Samples: []Sample{fast, slow}}, 0)
	if r.judge(50, nil); !r.Little.Known || r.Little.Violated || r.Little.Off > 1e-9 {
		t.Errorf("%+v", r.Little)
	}
	slow.Cycle = 100
	r = read(Point{Setting: Setting{Users: 8, Locks: 1}, Samples: []Sample{slow, slow, fast}}, 0)
	if r.judge(50, nil); !r.Little.Violated {
		t.Errorf("%+v", r.Little)
	}
}

// TestUsersInsideTheGenerator: they are reported from a tenth on, and mark nothing.
func TestUsersInsideTheGenerator(t *testing.T) {
	for outside, want := range map[float64]string{0.12: "; 12 % of the users were inside the generator", 0.1: "is allowed"} {
		s := calm()
		s.Cycles, s.InService, s.Outside = 200*(1-outside), 8*(1-outside), ptr(outside)
		r := read(Point{Setting: Setting{Users: 8, Locks: 1}, Samples: []Sample{s}}, 0)
		if r.judge(50, nil); !strings.HasSuffix(r.Little.String(), want) || len(r.Marks) > 0 {
			t.Errorf("%g: %s, marks %q", outside, r.Little, r.Marks)
		}
	}
}

func TestIntervals(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   Interval
		says   string
	}{
		"none":  {nil, Interval{}, "not known"},
		"one":   {[]float64{4}, Interval{1, 4, 4, 4, true}, "4"},
		"three": {[]float64{5, 1, 2}, Interval{3, 2, 1, 5, true}, "2 (1 to 5)"},
		"five":  {[]float64{5, 1, 2, 4, 3}, Interval{5, 3, 1, 5, true}, "3 (1 to 5)"},
		"six":   {[]float64{5, 1, 2, 4, 3, 6}, Interval{6, 3.5, 1, 6, false}, "3.50 (1 to 6)"},
		"nine":  {[]float64{1, 2, 3, 4, 5, 6, 7, 8, 900}, Interval{9, 5, 2, 8, false}, "5 (2 to 8)"},
	} {
		if got := Summary(c.values); got != c.want || got.String() != c.says {
			t.Errorf("%s: %+v %q, want %+v %q", name, got, got, c.want, c.says)
		}
	}
}

// Only points that measure the lock itself are fitted.
func TestPointsThatAreNotFitted(t *testing.T) {
	u := laws["parallel"]
	sweep := func(change func(users int, s *Sample)) Sweep {
		s := Sweep{Schema: Schema}
		for _, n := range swept {
			one := calm()
			one.Cycles, one.InService, one.Handoff = u.At(n), n, nil
			one.Cycle = 1e3 * n / one.Cycles
			bad := one
			bad.Cycles, bad.Spoilt = 1, "the machine stood still"
			change(int(n), &one)
			s.Points = append(s.Points, Point{Setting: Setting{Backend: "etcd", Lock: "mutex", Users: int(n), Locks: 64}, Samples: []Sample{bad, one}})
		}
		return s
	}
	for name, change := range map[string]func(n int, s *Sample){
		"spoilt samples alone": func(int, *Sample) {},
		"the generator": func(n int, s *Sample) {
			if n >= 128 {
				s.Cycles, s.Cycle, s.CPU["clients"] = 100, float64(n)*10, 1.9
			}
		},
		"the emulation": func(n int, s *Sample) {
			if n >= 128 {
				s.Cycles, s.Cycle, s.Packets = 100, float64(n)*10, ptr(30_000)
			}
		},
		"Little's law": func(n int, s *Sample) {
			if n >= 128 {
				s.Cycles = 100
			}
		},
		"a lock that is none": func(n int, s *Sample) {
			if n >= 128 {
				s.Cycles, s.Cycle, s.Verdict = 9000, float64(n)/9, "fail"
			}
		},
	} {
		c := Analyse(sweep(change)).Curves[0]
		if c.Fit == nil || math.Abs(c.Fit.Lambda/u.Lambda-1)+math.Abs(c.Fit.Kappa/u.Kappa-1) > 1e-6 {
			t.Errorf("%s: %+v, %s", name, c.Fit, c.NoFit)
		}
		if last := c.Closed[len(c.Closed)-1]; name != "spoilt samples alone" && (len(last.Marks) == 0 || c.Fit.To != 64 || c.Peak().Users > 64) {
			t.Errorf("%s: fitted up to %d users, marks %q", name, c.Fit.To, last.Marks)
		}
	}
	s := sweep(func(int, *Sample) {})
	s.Points = s.Points[1:]
	for _, r := range Analyse(s).Curves[0].Closed {
		if slices.ContainsFunc(r.Limit.Candidates, func(c Candidate) bool { return c.Cause == Users && c.Known }) {
			t.Errorf("%d users are held against one alone, whom nobody measured", r.Users)
		}
	}
	c := Analyse(sweep(func(n int, s *Sample) { s.CPU["clients"] = 1.9 })).Curves[0]
	if c.Fit != nil || c.Peak() != nil || !strings.Contains(c.NoFit, "0 points usable") {
		t.Errorf("%+v, %q", c.Fit, c.NoFit)
	}
}
