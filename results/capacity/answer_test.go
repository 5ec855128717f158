package capacity

import (
	"strings"
	"testing"
	"time"
)

// TestAnswers: yes and no need three runs that agree. Anything else is NobodyCanSay, with what to do about it.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const rate, most = 2000.0, 20 * time.Millisecond
	run := func(p99, served float64) Sample {
		return Sample{Verdict: "pass", Cycles: served, Offered: rate, Acquires: 6000, Latency: map[string]float64{"p50": p99 / 4, "p99": p99}, Cores: 2}
	}
	late := run(30, rate)
	late.Late = 15
	behind := run(900, rate)
	behind.Late = 15
	broken := run(5, rate)
	broken.Verdict = "fail"
	few := run(11, rate)
	few.Acquires = 60
	untimed := run(11, rate)
	untimed.Acquires, untimed.Latency = 3, nil
	synced := Sample{Verdict: "pass", Cycles: 259, Cycle: 240, Acquires: 700, Fsync: ptr(3.0), Cores: 2}
	for name, c := range map[string]struct {
		runs []Sample
		peak *Sample
		said Answered
		text string
	}{
		"it does":                          {[]Sample{run(11, rate), run(9, rate), run(14, rate)}, &Sample{Verdict: "pass", Cycles: 9123, Cores: 2}, Yes, "redis: yes, p99 11 ms (9 to 14) at 2,000/s; peak at least 9,100/s (not confirmed)"},
		"without a peak":                   {[]Sample{run(11, rate), run(9, rate), run(14, rate)}, nil, Yes, "redis: yes, p99 11 ms (9 to 14) at 2,000/s"},
		"too slow":                         {[]Sample{run(31, rate), run(29, rate), run(34, rate)}, nil, No, "redis: no: p99 31 ms (29 to 34) at 2,000/s"},
		"not served":                       {[]Sample{run(900, 259), run(800, 259), run(850, 259)}, &synced, No, "redis: no: 259/s of 2,000 are served"},
		"no lock":                          {[]Sample{broken, broken, broken}, nil, No, "redis: no: the lock broke its promise in 3 of 3 runs at 2,000/s"},
		"runs differ":                      {[]Sample{run(11, rate), run(31, rate), run(12, rate)}, nil, NobodyCanSay, "redis: unknown: 2 of 3 runs at 2,000/s kept p99 within 20 ms, 1 did not (p99 12 ms (11 to 31)): lower the rate, or make runs longer with --for"},
		"a late generator":                 {[]Sample{run(11, rate), late, late}, nil, NobodyCanSay, "redis: unknown: the load generator was late in 2 of 3 runs at 2,000/s: run the clients on a less busy machine, or use more --users"},
		"late, and overloaded by far more": {[]Sample{behind, behind, behind}, nil, No, "redis: no: p99 900 ms at 2,000/s"},
		"spoilt runs":                      {[]Sample{run(11, rate), run(11, rate), {Spoilt: "the machine stood still"}}, nil, NobodyCanSay, "redis: unknown: 1 of 3 runs at 2,000/s cannot be used: the machine stood still"},
		"too few runs":                     {[]Sample{run(11, rate)}, nil, NobodyCanSay, "redis: unknown: 1 run at 2,000/s, but an answer needs 3: give it more time with --budget"},
		"runs too short to time anything":  {[]Sample{untimed, untimed, untimed}, nil, NobodyCanSay, "redis: unknown: 3 of 3 runs at 2,000/s cannot be used: too few acquires were timed; make runs longer with --for"},
		"too few acquires":                 {[]Sample{few, few, few}, nil, NobodyCanSay, "redis: unknown: 180 acquires at 2,000/s, but p99 needs 200: make runs longer with --for"},
		"nothing was measured":             {nil, nil, NobodyCanSay, "redis: unknown: no run was made at 2,000/s: the budget of 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := Setting{Backend: "redis", Lock: "set-px-lua", Users: 64, Locks: 64}
			s := Sweep{Schema: Schema, Scenario: "capacity", Measured: int64(3 * time.Second), Objective: &Objective{0.99, int64(most)}, Asked: []float64{rate}}
			if c.peak != nil {
				s.Points = append(s.Points, Point{Setting: of, Samples: []Sample{*c.peak}})
			}
			of.Rate = rate
			if c.runs == nil {
				s.Left = []Left{{of, "the budget of 10s"}}
			} else {
				s.Points = append(s.Points, Point{Setting: of, Samples: c.runs})
			}
			a := Analyse(s)
			got := a.Answers()
			if len(got) != 1 || got[0].Said != c.said || !strings.HasPrefix(got[0].Text, c.text) || Worst(got) != c.said {
				t.Fatalf("%+v, want %s: %s", got, c.said, c.text)
			}
			var text, page strings.Builder
			if err := Text(&text, a); err != nil {
				t.Fatal(err)
			}
			if first, _, _ := strings.Cut(text.String(), "\n"); !strings.HasPrefix(got[0].Text, first) {
				t.Errorf("the first line is %q", first)
			}
			if err := HTML(&page, a); err != nil || strings.Index(page.String(), "redis: "+string(c.said)) < strings.Index(page.String(), "<h1>") {
				t.Errorf("the page does not begin with the answer: %v", err)
			}
		})
	}
}

// TestTheWorstAnswer: one no outweighs an undecided answer for another lock.
func TestTheWorstAnswer(t *testing.T) {
	t.Parallel()
	for want, said := range map[Answered][]Answered{
		Yes: {Yes, Yes}, No: {Yes, NobodyCanSay, No, NobodyCanSay, Yes}, NobodyCanSay: {Yes, NobodyCanSay, Yes},
	} {
		var all []Answer
		for _, one := range said {
			all = append(all, Answer{Said: one})
		}
		if got := Worst(all); got != want {
			t.Errorf("%v: %s", said, got)
		}
	}
}
