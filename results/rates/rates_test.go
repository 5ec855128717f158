package rates

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The ends agree with published tables.
func TestShareIsThatOfPublishedTables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		k, n      int
		low, high float64
	}{
		{0, 10, 0, 0.30850},
		{5, 10, 0.18709, 0.81291},
		{10, 10, 0.69150, 1},
		{18, 100, 0.11031, 0.26948},
		{99, 100, 0.94554, 0.99975},
		{0, 3000, 0, 0.00123},
	} {
		e := Share(c.k, c.n)
		if math.Abs(e.Low-c.low) > 5e-5 || math.Abs(e.High-c.high) > 5e-5 {
			t.Errorf("%d of %d: %.5f to %.5f, want %.5f to %.5f", c.k, c.n, e.Low, e.High, c.low, c.high)
		}
	}
}

// bunch draws the size of one bunch.
type bunch func(*rand.Rand) float64

func between(low, high float64) bunch {
	return func(r *rand.Rand) float64 { return math.Floor(low + r.Float64()*(high-low+1)) }
}

// geometric sizes start at 1.
func geometric(mean, most float64) bunch {
	return func(r *rand.Rand) float64 { return min(most, 1+math.Floor(math.Log(1-r.Float64())/math.Log(1-1/mean))) }
}

// either draws rarely from the one, and mostly from the other.
func either(share float64, rarely, mostly bunch) bunch {
	return func(r *rand.Rand) float64 {
		if r.Float64() < share {
			return rarely(r)
		}
		return mostly(r)
	}
}

// The intervals must contain the true rate and the true size in 93 % of 1,000 measurements, whatever the shape of the
// failovers.
func TestIntervalsCoverBunches(t *testing.T) {
	t.Parallel()
	const draws, least, held = 1000, 930, 150
	for i, c := range []struct {
		name   string
		share  float64 // trials with any
		size   bunch
		trials []int
	}{
		{"none at all", 0, between(1, 1), []int{10, 100}},
		{"rare, and then half of all", 0.01, between(50, 100), []int{14, 110}},
		{"rare, of any size", 0.05, between(1, held), []int{14, 110}},
		{"now and then, mostly small", 0.13, geometric(2, held), []int{14, 100}},
		{"now and then, clustered", 0.2, geometric(20, held), []int{10, 100}},
		{"often small", 0.8, geometric(2, held), []int{10, 100}},
		{"always some", 1, between(8, 26), []int{10, 100}},
		{"always few or all", 1, either(0.5, between(held, held), between(1, 3)), []int{10, 100}},
		{"small, and one of ten nearly all", 0.4, either(0.1, between(75, held), geometric(2, held)), []int{10, 30, 100}},
		{"small, and one of a hundred all", 0.98, either(0.01, between(held, held), geometric(4, held)), []int{10, 100}},
	} {
		for _, n := range c.trials {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				r := rand.New(rand.NewPCG(39, uint64(i)))
				size := 0.0
				for range 100_000 {
					size += c.size(r) / 100_000
				}
				rates, sizes, judged := 0, 0, 0
				for range draws {
					trials := make([]int64, n)
					for j := range trials {
						if r.Float64() < c.share {
							trials[j] = int64(c.size(r))
						}
					}
					b := Bunches(trials, held)
					if b.Rate.Low <= c.share*size && c.share*size <= b.Rate.High {
						rates++
					}
					if b.Size != nil {
						if judged++; b.Size.Low <= size && size <= b.Size.High {
							sizes++
						}
					}
				}
				if rates < least {
					t.Errorf("%d trials: the interval of the rate contains it %d times of %d", n, rates, draws)
				}
				if sizes*draws < least*judged {
					t.Errorf("%d trials: the interval of the size contains it %d times of %d", n, sizes, judged)
				}
			})
		}
	}
}

// A published measurement of a Sentinel and its repetition: the intervals must touch.
func TestTwoMeasurementsOfARareBunchAgree(t *testing.T) {
	t.Parallel()
	published, again := make([]int64, 110), make([]int64, 14)
	published[50] = 75
	a, b := Bunches(published, 150).Rate, Bunches(again, 150).Rate
	if a.Low > b.High || b.Low > a.High || b.High < a.Value {
		t.Errorf("%v and %v", a, b)
	}
	if math.Abs(a.Value-75./110) > 1e-9 || a.Low > 0.001 || a.High < 7 || a.High > 8 {
		t.Errorf("75 of one failover of 110 are %v", a)
	}
}

// A measurement with observed events never has a lower upper bound than one without any.
func TestNothingSeenHasTheLeastUpperEnd(t *testing.T) {
	t.Parallel()
	none := Bunches(make([]int64, 100), 150).Rate.High
	for hits := range 100 {
		trials := make([]int64, 100)
		for i := range hits {
			trials[i] = 1
		}
		if b := Bunches(trials, 150); b.Rate.High < none || b.Rate.Low > b.Rate.Value || b.Rate.Value > b.Rate.High {
			t.Fatalf("%d hits: %v, and none has %v", hits, b.Rate, none)
		}
	}
}

func TestTheSameTrialsHaveTheSameIntervals(t *testing.T) {
	t.Parallel()
	trials := []int64{3, 0, 7, 1, 1, 4, 0, 9, 2, 2}
	a, b := Bunches(trials, 50), Bunches(slices.Clone(trials), 50)
	if a.Rate != b.Rate || *a.Size != *b.Size {
		t.Errorf("%v and %v", a, b)
	}
}
