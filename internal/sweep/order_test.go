package sweep

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/internal/campaign"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/capacity"
)

// grid returns points by users, half of them with other servers.
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
	c := cost{point: func(Point) time.Duration { return 10 * time.Second }, first: 10 * time.Second, search: 5}
	for _, x := range []struct {
		budget time.Duration
		repeat int
		want   []int // users
		why    string
	}{
		{0, 3, []int{1, 2, 3, 4, 5}, ""},
		{210 * time.Second, 3, []int{1, 2, 3, 4, 5}, ""},
		{209 * time.Second, 2, []int{1, 2, 3, 4, 5}, "would take about 3m30s, but the budget is 3m29s: each point is run twice instead of 3"},
		{110 * time.Second, 1, []int{1, 2, 3, 4, 5}, "each point is run once instead of 3"},
		{90 * time.Second, 1, []int{1, 3, 5}, "each point is run once instead of 3, and 2 of 5 points are omitted"},
		{80 * time.Second, 1, []int{1, 3, 5}, "and 2 of 5 points are omitted, and the search of rates has about 40s"},
		{60 * time.Second, 1, []int{1, 5}, "3 of 5 points are omitted"},
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
	if s, err := within(grid(5), 3, 59*time.Second, c); err == nil || !strings.Contains(err.Error(), "about 1m0s; the whole takes about 3m30s") {
		t.Errorf("a budget that is too small: %v, %v", users(s.points), err)
	}
}

// TestBudgetOfManyCurves uses the axes of lockquake capacity --users 1,2,4..256 --locks 1,64 --rtt 0,1ms,5ms --slo
// p99=20ms, in containers.
func TestBudgetOfManyCurves(t *testing.T) {
	t.Parallel()
	numbers := []int{1, 2, 4, 8, 16, 32, 64, 128, 256}
	var points []Point
	for _, rtt := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		for _, locks := range []int{1, 64} {
			for _, n := range numbers {
				points = append(points, Point{Setting: capacity.Setting{Users: n, Locks: locks, RTT: int64(rtt)}})
			}
		}
	}
	c := cost{first: 10 * time.Second, search: searchRuns, point: func(p Point) time.Duration {
		return 6500*time.Millisecond + time.Duration(min(p.RTT, 1))*shapingTime
	}}
	const first, last = "1 lock", "64 locks, RTT 5ms"
	for _, x := range []struct {
		budget time.Duration
		repeat int
		curves int
		users  []int
		why    string
	}{
		{0, 3, 6, numbers, ""},
		{30 * time.Minute, 3, 6, numbers, ""},
		{25 * time.Minute, 2, 6, numbers, "the sweep would take about 26m41s, but the budget is 25m0s: each point is run twice instead of 3"},
		{10 * time.Minute, 1, 6, []int{1, 4, 8, 32, 64, 256}, "each point is run once instead of 3, and 18 of 54 points are omitted, and the search of rates has about 5m32s"},
		{4 * time.Minute, 1, 2, []int{1, 2, 8, 16, 32, 128, 256}, "40 of 54 points are omitted, and 4 of 6 curves with them, and the search of rates has about 2m12s"},
		{time.Minute, 1, 1, []int{1, 16, 256}, "51 of 54 points are omitted, and 5 of 6 curves with them"},
	} {
		s, err := within(points, 3, x.budget, c)
		if err != nil {
			t.Errorf("%v: %v", x.budget, err)
			continue
		}
		if s.repeat != x.repeat || !strings.Contains(s.why, x.why) || x.why == "" && s.why != "" || x.budget > 0 && s.takes > x.budget || len(s.points)+len(s.left) != len(points) {
			t.Errorf("%v: %d times, %v, %d and %d points: %s", x.budget, s.repeat, s.takes, len(s.points), len(s.left), s.why)
		}
		curves := byUsers(s.points)
		for _, curve := range curves {
			if !slices.Equal(users(curve), x.users) {
				t.Errorf("%v: %s keeps users %v, want %v", x.budget, Name(curve[0].Setting), users(curve), x.users)
			}
		}
		if len(curves) != x.curves || !strings.HasSuffix(Name(curves[0][0].Setting), first) || x.curves > 1 && !strings.HasSuffix(Name(curves[x.curves-1][0].Setting), last) {
			t.Errorf("%v: %d curves from %v", x.budget, len(curves), curves[0][0].Setting)
		}
	}
}

// TestShareOfASearch: no curve's search takes the time of another's, and the rest share what one leaves.
func TestShareOfASearch(t *testing.T) {
	t.Parallel()
	s := Sweep{Budget: 10 * time.Minute, began: clock.Now() - int64(4*time.Minute), pace: pace{done: 1, took: 10 * time.Second}}
	share := func(curves int) time.Duration { return (&searches{sweep: &s, left: make([]Point, curves)}).share() }
	const aside = 10 * time.Second // for the time that passes meanwhile
	for curves, want := range map[int]time.Duration{6: 5 * time.Minute, 3: 6 * time.Minute, 1: 10 * time.Minute} {
		if got := share(curves); got < want || got > want+aside {
			t.Errorf("%d curves: the next ends at %v, want %v", curves, got, want)
		}
	}
	if why := s.mustEnd(share(6)); why != "" {
		t.Errorf("the first curve has a minute, and ends: %s", why)
	}
	s.pace.took = 2 * time.Minute
	if why := s.mustEnd(share(6)); why != "the budget of 10m0s" {
		t.Errorf("a run of two minutes in a share of one: %q", why)
	}
	if s.Budget = 0; share(6) != 0 || s.mustEnd(share(6)) != "" {
		t.Error("a search without a budget ends")
	}
}

// TestResume requires that measured points are not measured again, and that the rest follows in the order of the
// first command. That holds for a journal, and for the file of a sweep without one.
func TestResume(t *testing.T) {
	t.Parallel()
	whole := Sweep{File: capacity.Sweep{Seed: 5}, plan: schedule{points: grid(4), repeat: 2}}
	all := whole.plan.lacking(whole.File)
	if len(all) != 8 {
		t.Fatalf("%d runs", len(all))
	}
	for i, p := range all[:5] {
		whole.add(noted{p.Setting, capacity.Sample{Order: i, Run: fmt.Sprint("run-", i)}, map[string]string{"x.version": "1", "differs": fmt.Sprint(i)}})
	}
	done, err := Results(whole.File)
	if err != nil {
		t.Fatal(err)
	}
	rest := Sweep{Journal: campaign.New(t.TempDir(), results.Origin{}, done...), File: capacity.Sweep{Seed: 5}}
	if err := rest.again(); err != nil || rest.order != 5 {
		t.Errorf("it goes on with run %d, %v", rest.order, err)
	}
	if d := cmp.Diff(whole.File, rest.File); d != "" {
		t.Errorf("it goes on with other points: %s", d)
	}
	rest.plan = whole.plan
	if got := rest.plan.lacking(rest.File); !slices.Equal(users(got), users(all[5:])) {
		t.Errorf("it goes on with %v, want %v", users(got), users(all[5:]))
	}
	rest.leave(all, "interrupted")
	if len(rest.File.Left) != 0 {
		t.Errorf("left: %v, and each point has a sample", rest.File.Left)
	}
	broken := Sweep{Journal: campaign.New(t.TempDir(), results.Origin{}, campaign.Result{Job: "it", Note: []byte("7")})}
	if err := broken.again(); err == nil || !strings.Contains(err.Error(), `the note of "it"`) {
		t.Errorf("a note that is none: %v", err)
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
	if got := peak(curve(s.File.Points, capacity.Setting{Locks: 1})); got != 150 {
		t.Errorf("the peak is %g", got)
	}
}

// TestNothingIsLeftOutUntold requires a reason for each point without a sample.
func TestNothingIsLeftOutUntold(t *testing.T) {
	t.Parallel()
	s := Sweep{}
	points := grid(3)
	s.add(noted{Setting: points[0].Setting})
	s.leave(append(points, points...), "the budget of 1m")
	var left []int
	for _, l := range s.File.Left {
		left = append(left, l.Users)
	}
	if !slices.Equal(left, []int{2, 3}) {
		t.Errorf("left out: %v", left)
	}
}

// A point keeps the policy of its own service, even if the points differ and the sweep has none.
func TestPolicyOfAPoint(t *testing.T) {
	t.Parallel()
	var s Sweep
	for name, policy := range map[string]string{"default": "poll every 10ms +/- 50 %", "spin": "poll without a pause", "": "none: waiters wait in the server"} {
		s.add(noted{Setting: capacity.Setting{Users: 1, Locks: 1, Retry: name}, Service: map[string]string{"lock.retry": policy}})
	}
	done, err := Results(s.File)
	again := Sweep{Journal: campaign.New(t.TempDir(), results.Origin{}, done...)}
	if err = errors.Join(err, again.again()); err != nil || !cmp.Equal(again.File.Points, s.File.Points) {
		t.Errorf("gone on with: %+v, %v", again.File, err)
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

// TestLargestSweepCanBeWritten: the file can hold the largest sweep, with the most rates that its searches may try.
func TestLargestSweepCanBeWritten(t *testing.T) {
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
		for i := 0; searched; i++ { // rates are indistinguishable: the longest search
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
