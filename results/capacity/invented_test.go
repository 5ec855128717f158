package capacity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockquake/lockquake/internal/seed"
	"github.com/lockquake/lockquake/results"
)

// invented is a synthetic sweep. Its figures come from a law, with noise: etcd on 1 and on 64 locks, and a polling
// lock of Redis, whose throughput no law explains.
func invented() Sweep {
	s := Sweep{
		Schema: Schema, Scenario: "capacity-invented", Seed: 42, Provider: "local",
		Origin: results.Origin{
			Version: "0.0.0 (invented)", Started: "2026-01-02T03:04:05Z", Command: "lockquake capacity --backend etcd --lock mutex --users 1,2,4..128 --locks 1,64 --rtt 1ms --slo p99=20ms",
			Host: map[string]string{"os": "linux", "kernel": "6.1", "cores": "8", "invented": "yes"},
		},
		Service: map[string]string{"etcd.version": "3.7.3", "redis.version": "8.2.1"}, Objective: &Objective{0.99, int64(20 * time.Millisecond)},
		Repeat: 3, Warm: int64(2 * time.Second), Measured: int64(10 * time.Second), Interrupted: true,
	}
	order := 0
	add := func(p Setting, n int, sample func(rnd *rand.Rand) Sample) {
		rnd := seed.Rand(s.Seed, fmt.Sprint(p.Backend, p.Locks, p.Users, p.Rate))
		if at := slices.IndexFunc(s.Points, func(q Point) bool { return q.Setting == p }); at < 0 {
			s.Points = append(s.Points, Point{Setting: p})
		}
		point := &s.Points[slices.IndexFunc(s.Points, func(q Point) bool { return q.Setting == p })]
		if p.Retry != "" {
			point.Policy = "poll every 1ms +/- 50 %, each time 2 times as long until it is 100ms"
		}
		for range n {
			one := sample(rnd)
			one.Run, one.Order, one.Cores = fmt.Sprintf("../capacity-invented/%03d", order), order, 8
			if one.Verdict == "" {
				one.Verdict = "pass"
			}
			order++
			point.Samples = append(point.Samples, one)
		}
	}
	rtt := int64(time.Millisecond)
	for _, c := range []struct {
		locks int
		law   USL
	}{{1, USL{240, 0.55, 0.0004}}, {64, USL{240, 0.03, 0.00008}}} {
		p := Setting{Backend: "etcd", Lock: "mutex", Nodes: 3, Locks: c.locks, Hold: int64(time.Millisecond), TTL: int64(10 * time.Second), RTT: rtt}
		for n := 1; n <= 128; n *= 2 {
			p.Users = n
			add(p, 3, func(rnd *rand.Rand) Sample { return closed(p, c.law.At(float64(n))*wobble(rnd, 0.03)) })
		}
		knee := 1400.0
		if c.locks == 1 {
			knee = 330
		}
		p.Users = 256
		search := Search{Objective: *s.Objective, Start: knee * 1.3, Measured: s.Measured}
		rnd := seed.Rand(s.Seed, fmt.Sprint("open", c.locks))
		for first := len(s.Points); ; {
			rate, done := search.Next(s.Points[first:])
			if done {
				break
			}
			p.Rate = rate
			add(p, 1, func(*rand.Rand) Sample { return open(p, queue(knee+230, rate, 0.02, rnd)) })
		}
	}
	p := Setting{Backend: "redis", Lock: "set-px-lua", Nodes: 1, Locks: 1, Hold: int64(time.Millisecond), TTL: int64(10 * time.Second), RTT: rtt, Retry: "exponential"}
	for i, x := range []float64{300, 480, 520, 160, 340, 60, 150, 30} {
		p.Users = 1 << i
		add(p, 2, func(rnd *rand.Rand) Sample {
			one := closed(p, x*wobble(rnd, 0.03))
			one.Fsync, one.Verdict = nil, "pass"
			switch p.Users {
			case 64:
				one.CPU["clients"] = 7.3
			case 128:
				one.Spoilt = "the machine stood still for 1.2 s"
			}
			return one
		})
	}
	p.Users = 256
	s.Left = []Left{{p, "the budget of 10m0s was over"}}
	return s
}

func wobble(rnd *rand.Rand, noise float64) float64 { return math.Exp(noise * rnd.NormFloat64()) }

// closed returns a sample with the given cycles a second.
func closed(p Setting, cycles float64) Sample {
	cycle := 1e3 * float64(p.Users) / cycles
	s := Sample{
		Cycles: cycles, Cycle: cycle, HoldMean: 1, InService: float64(p.Users), Requests: ptr(3), RTT: ptr(1.1), Fsync: ptr(0.6),
		CPU: map[string]float64{"servers": cycles / 2000, "clients": cycles / 4000, "supervisor": cycles / 8000},
	}
	if p.Users > p.Locks {
		s.Handoff = ptr(max(1e3*float64(p.Locks)/cycles-1, 0.05))
	}
	s.Latency = spectrum(cycle - 1)
	return s
}

func open(p Setting, s Sample) Sample {
	mean := 40.0
	if p99, ok := s.Latency["p99"]; ok {
		mean = p99 / math.Log(100)
	}
	s.Latency, s.HoldMean, s.Late = spectrum(mean), 1, 0.3
	s.Latency["p99"] = mean * math.Log(100)
	s.Cycle = mean + 1
	s.InService = s.Cycles * s.Cycle / 1e3
	s.CPU = map[string]float64{"servers": s.Cycles / 2000, "clients": s.Cycles / 4000, "supervisor": s.Cycles / 8000}
	return s
}

// spectrum returns the quantiles of an exponential time with this mean, in ms.
func spectrum(mean float64) map[string]float64 {
	out := map[string]float64{"mean": mean, "max": mean * math.Log(50_000)}
	for i, q := range []float64{0.5, 0.9, 0.99, 0.999, 0.9999} {
		out[Quantiles[i]] = mean * -math.Log(1-q)
	}
	return out
}
