package sweep

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// grid is points by users, half of them with other servers.
func grid(n int) []Point {
	var out []Point
	for i := range n {
		out = append(out, Point{Setting: capacity.Setting{Users: i + 1, Locks: 1}, block: fmt.Sprint(i * 2 / n)})
	}
	return out
}

func users(points []Point) (out []int) {
	for _, p := range points {
		out = append(out, p.Users)
	}
	return out
}

func TestRoundsRunEveryPointOnce(t *testing.T) {
	t.Parallel()
	const n, repeat = 8, 3
	points := grid(n)
	order := users(rounds(points, repeat, 7))
	if !slices.Equal(order, users(rounds(points, repeat, 7))) {
		t.Error("one seed, two orders")
	}
	if slices.Equal(order, users(rounds(points, repeat, 8))) {
		t.Error("two seeds, one order")
	}
	first := order[:n]
	within := func(round []int) []int { // those of one block
		return slices.DeleteFunc(slices.Clone(round), func(u int) bool { return u > n/2 })
	}
	if slices.Equal(within(first), within(order[n:2*n])) && slices.Equal(within(first), within(order[2*n:])) {
		t.Errorf("points that share servers have one order in all rounds: %v", order)
	}
	for r := range repeat {
		round := order[r*n : (r+1)*n]
		if r > 0 && slices.Equal(round, first) {
			t.Errorf("round %d has the order of the first", r)
		}
		changes := 0
		for i := 1; i < n; i++ {
			if (round[i] <= n/2) != (round[i-1] <= n/2) {
				changes++
			}
		}
		if changes != 1 {
			t.Errorf("round %d starts servers %d times: %v", r, changes+1, round)
		}
		if sorted := slices.Sorted(slices.Values(round)); !slices.Equal(sorted, []int{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("round %d runs %v", r, round)
		}
	}
	if got := users(points); !slices.IsSorted(got) {
		t.Errorf("the points themselves were moved: %v", got)
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	c := cost{point: func(Point) time.Duration { return 10 * time.Second }, first: 10 * time.Second, search: 50 * time.Second}
	for _, x := range []struct {
		budget time.Duration
		repeat int
		want   []int // users
		why    string
	}{
		{0, 3, []int{1, 2, 3, 4, 5}, ""},
		{210 * time.Second, 3, []int{1, 2, 3, 4, 5}, ""},
		{209 * time.Second, 2, []int{1, 2, 3, 4, 5}, "would take about 3m30s, and the budget is 3m29s: each point is run twice instead of 3"},
		{110 * time.Second, 1, []int{1, 2, 3, 4, 5}, "each point is run once instead of 3"},
		{90 * time.Second, 1, []int{1, 3, 5}, "each point is run once instead of 3, and 2 of 5 points are left out"},
		{80 * time.Second, 1, []int{1, 5}, "3 of 5 points are left out"},
	} {
		s, err := within(grid(5), 3, x.budget, c)
		if err != nil {
			t.Errorf("%v: %v", x.budget, err)
			continue
		}
		if s.repeat != x.repeat || !slices.Equal(users(s.points), x.want) || !strings.Contains(s.why, x.why) || x.why == "" && s.why != "" {
			t.Errorf("%v: %d times %v, %q; want %d times %v, %q", x.budget, s.repeat, users(s.points), s.why, x.repeat, x.want, x.why)
		}
		if len(s.left)+len(s.points) != 5 {
			t.Errorf("%v: %d points are left out and not told", x.budget, 5-len(s.left)-len(s.points))
		}
		if x.budget > 0 && s.takes > x.budget {
			t.Errorf("%v: what is left takes %v", x.budget, s.takes)
		}
	}
	if s, err := within(grid(5), 3, 79*time.Second, c); err == nil || !strings.Contains(err.Error(), "takes about 1m20s; the whole takes about 3m30s") {
		t.Errorf("a budget that is too small: %v, %v", users(s.points), err)
	}
}

// TestResume demands that what was measured is not measured again, and that the rest follows in the order of the first command.
func TestResume(t *testing.T) {
	t.Parallel()
	whole := Sweep{File: capacity.Sweep{Seed: 5}, plan: schedule{points: grid(4), repeat: 2}}
	all := whole.due()
	if len(all) != 8 {
		t.Fatalf("%d runs", len(all))
	}
	rest := Sweep{File: capacity.Sweep{Seed: 5, Interrupted: true, Left: []capacity.Left{{Setting: all[5].Setting, Why: "interrupted"}}}, plan: whole.plan}
	for i, p := range all[:5] {
		rest.add(p.Setting, Measured{Sample: capacity.Sample{Order: i}})
	}
	if got := rest.due(); !slices.Equal(users(got), users(all[5:])) {
		t.Errorf("it goes on with %v, want %v", users(got), users(all[5:]))
	}
	rest.resume()
	if rest.File.Interrupted || len(rest.File.Left) > 0 || rest.order != 5 {
		t.Errorf("it goes on as %+v, with run %d", rest.File, rest.order)
	}
	rest.leave(all, "interrupted")
	if len(rest.File.Left) != 0 {
		t.Errorf("left: %v, and each point has a sample", rest.File.Left)
	}
}

// TestPeak: the search begins at the best point of the closed loop, spoilt samples aside.
func TestPeak(t *testing.T) {
	t.Parallel()
	point := func(users int, rate float64, samples ...capacity.Sample) capacity.Point {
		return capacity.Point{Setting: capacity.Setting{Users: users, Locks: 1, Rate: rate}, Samples: samples}
	}
	s := Sweep{File: capacity.Sweep{Points: []capacity.Point{
		point(1, 0, capacity.Sample{Cycles: 90}, capacity.Sample{Cycles: 110}),
		point(2, 0, capacity.Sample{Cycles: 150}, capacity.Sample{Cycles: 900, Spoilt: "the machine stood still"}),
		point(4, 0, capacity.Sample{Cycles: 120}),
		point(4, 700, capacity.Sample{Cycles: 700}),
	}}}
	if got := s.peak(capacity.Setting{Locks: 1}); got != 150 {
		t.Errorf("the peak is %g", got)
	}
}

// TestNothingIsLeftOutUntold demands a reason for each point without a sample.
func TestNothingIsLeftOutUntold(t *testing.T) {
	t.Parallel()
	s := Sweep{}
	points := grid(3)
	s.add(points[0].Setting, Measured{})
	s.leave(append(points, points...), "the budget of 1m")
	var left []int
	for _, l := range s.File.Left {
		left = append(left, l.Users)
	}
	if !slices.Equal(left, []int{2, 3}) {
		t.Errorf("left out: %v", left)
	}
}

// A point keeps the policy that its own service had, also where the points' differ and none is the sweep's.
func TestPolicyOfAPoint(t *testing.T) {
	t.Parallel()
	var s Sweep
	for name, policy := range map[string]string{"default": "poll every 10ms +/- 50 %", "spin": "poll without a pause", "": "none: waiters wait in the server"} {
		env := results.Env{Schema: "any", Service: map[string]string{"lock.retry": policy}}
		s.add(capacity.Setting{Users: 1, Locks: 1, Retry: name}, Measured{Env: env})
	}
	if _, ok := s.File.Service["lock.retry"]; ok {
		t.Error("a policy of one point is told of all")
	}
	for _, p := range s.File.Points {
		want := map[string]string{"default": "poll every 10ms +/- 50 %", "spin": "poll without a pause"}[p.Retry]
		if p.Policy != want {
			t.Errorf("%q: %q, want %q", p.Retry, p.Policy, want)
		}
	}
}

// TestWhatIsPlannedCanBeWritten: the largest sweep, with the most rates that its searches may try, is one that its file holds.
func TestWhatIsPlannedCanBeWritten(t *testing.T) {
	t.Parallel()
	for _, searched := range []bool{false, true} {
		room := capacity.MostPoints
		if searched {
			room -= capacity.SearchMost // of one curve
		}
		if err := roomFor(grid(room), searched); err != nil {
			t.Error(err)
		}
		if err := roomFor(grid(room+1), searched); err == nil {
			t.Errorf("searched %v: one point too many is planned", searched)
		}
		s := capacity.Sweep{Schema: capacity.Schema}
		for _, p := range grid(room) {
			s.Points = append(s.Points, capacity.Point{Setting: p.Setting})
		}
		search := capacity.Search{Objective: capacity.Objective{Quantile: 0.99, Most: 1}, Start: 1}
		for i := 0; searched; i++ { // no rate is told from another: the longest search
			rate, done := search.Next(s.Points)
			if done {
				break
			}
			one := capacity.Sample{Cycles: rate, Offered: rate, Latency: map[string]float64{"p99": 0}}
			if i%4 == 3 {
				one.Spoilt = "the machine stood still"
			}
			s.Points = append(s.Points, capacity.Point{Setting: capacity.Setting{Users: 1, Locks: 1, Rate: rate}, Samples: []capacity.Sample{one}})
		}
		if err := capacity.Write(filepath.Join(t.TempDir(), capacity.File), s); err != nil {
			t.Error(err)
		}
	}
}
