package capacity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/lockquake/lockquake/results/figure"
)

// USL is Gunther's Universal Scalability Law: X(N) = λN / (1 + σ(N-1) + κN(N-1)). λ is the throughput of one user, σ
// the serial part of the work (contention), and κ the cost of agreement between all pairs (coherency). None is below
// 0. Source: N. J. Gunther, Guerrilla Capacity Planning, Springer 2007, chapters 4 to 6.
type USL struct {
	Lambda float64 `json:"lambda"`
	Sigma  float64 `json:"sigma"`
	Kappa  float64 `json:"kappa"`
}

// At returns the throughput of n users.
func (u USL) At(n float64) float64 {
	return u.Lambda * n / (1 + u.Sigma*(n-1) + u.Kappa*n*(n-1))
}

// Peak returns the number of users with the highest throughput, sqrt((1-σ)/κ), by Gunther. It is +Inf if κ is 0: the
// curve then only flattens.
func (u USL) Peak() float64 {
	if u.Sigma >= 1 {
		return 1
	}
	return max(1, math.Sqrt((1-u.Sigma)/u.Kappa))
}

// Knee returns where the curve bends: how many users a lock without scaling losses (λN) would need for this lock's
// highest throughput. That is the saturation point of operational analysis (Denning and Buzen 1978): 1/σ if κ is 0.
// It is +Inf if the curve does not bend.
func (u USL) Knee() float64 {
	if peak := u.Peak(); !math.IsInf(peak, 1) {
		return u.At(peak) / u.Lambda
	}
	return 1 / u.Sigma
}

// Range is a figure of the fit with its bootstrap interval of 95 %. High is +Inf if the interval is unbounded.
type Range struct{ Mid, Low, High float64 }

// Fit is a USL that explains a curve.
type Fit struct {
	USL
	LambdaRange, SigmaRange, KappaRange Range
	PeakRange, KneeRange                Range
	// Miss and WorstMiss are the relative distances of the line from the points: the root mean square, and the
	// maximum.
	Miss, WorstMiss float64
	// Spread is the relative standard deviation of a sample within its point; 0 if no point has two samples.
	Spread float64
	Points int
	// From and To are the users of the first and the last fitted point.
	From, To int
}

// Requirements of a fit. A line has three coefficients: it could hardly miss four points.
const (
	leastPoints = 5
	// mostMiss is the maximum distance of the line from the points, unless the samples themselves vary as much.
	mostMiss  = 0.10
	resamples = 500
)

// level is the throughput at one number of users.
type level struct {
	users   float64
	samples []float64
	mean    float64
}

func (l level) weight() float64 { return float64(len(l.samples)) }

// fit fits the law to levels; the error says in words why it cannot.
func fit(levels []level, rnd *rand.Rand) (*Fit, error) {
	if len(levels) < leastPoints {
		return nil, fmt.Errorf("%s usable; a fit needs %d", figure.Of(len(levels), "point"), leastPoints)
	}
	slices.SortFunc(levels, func(a, b level) int { return int(a.users - b.users) })
	for i := range levels {
		levels[i].mean = stat.Mean(levels[i].samples, nil)
		if !(levels[i].mean > 0) {
			return nil, fmt.Errorf("with %g users there were no cycles", levels[i].users)
		}
	}
	u, err := solve(levels)
	if err != nil {
		return nil, err
	}
	f := &Fit{
		USL: u, Points: len(levels), From: int(levels[0].users), To: int(levels[len(levels)-1].users),
		Spread: spread(levels),
	}
	// Scale the residuals to one sample, correct for the three degrees of freedom of the coefficients, and widen the
	// spread as in Student's t for few residuals.
	free := float64(len(levels) - 3)
	student := distuv.StudentsT{Sigma: 1, Nu: free}.Quantile((1+confidence)/2) / distuv.UnitNormal.Quantile((1+
		confidence)/2)
	var residuals []float64
	sum := 0.0
	for _, l := range levels {
		r := l.mean/u.At(l.users) - 1
		sum += r * r
		f.WorstMiss = max(f.WorstMiss, math.Abs(r))
		residuals = append(residuals, r*student*math.Sqrt(l.weight()*float64(len(levels))/free))
	}
	f.Miss = math.Sqrt(sum / float64(len(levels)))
	if most := max(mostMiss, 2*f.Spread); f.Miss > most {
		return nil, fmt.Errorf("the mean deviation from the points would be %s; a fit allows %s (samples of one point differ by %s)", percent(f.Miss), percent(most), percent(f.Spread))
	}
	return f, f.bootstrap(levels, residuals, rnd)
}

// solve finds the coefficients by weighted least squares. N/X = (1/λ)(1 + σ(N-1) + κN(N-1)) is linear in 1/λ, σ/λ and
// κ/λ. With the weight X/N its residuals are the relative ones of the throughput. So there is one minimum, and no
// start value is needed. A coefficient that would be below 0 is left out: of the four ways to do so, the one with the
// smallest residuals is taken.
func solve(levels []level) (USL, error) {
	best, found := math.Inf(1), USL{}
	for _, columns := range [][]int{{0, 1, 2}, {0, 1}, {0, 2}, {0}} {
		a, b := mat.NewDense(len(levels), len(columns), nil), mat.NewVecDense(len(levels), nil)
		for i, l := range levels {
			w := math.Sqrt(l.weight())
			terms := [3]float64{1, l.users - 1, l.users * (l.users - 1)}
			for j, c := range columns {
				a.Set(i, j, w*terms[c]*l.mean/l.users)
			}
			b.SetVec(i, w)
		}
		var x mat.VecDense
		if err := x.SolveVec(a, b); err != nil {
			continue // linearly dependent columns, as with equal numbers of users
		}
		coefficients := [3]float64{}
		for j, c := range columns {
			coefficients[c] = x.AtVec(j)
		}
		if coefficients[0] <= 0 || coefficients[1] < 0 || coefficients[2] < 0 {
			continue
		}
		var r mat.VecDense
		r.MulVec(a, &x)
		r.SubVec(&r, b)
		if miss := mat.Norm(&r, 2); miss < best {
			best = miss
			found = USL{1 / coefficients[0], coefficients[1] / coefficients[0], coefficients[2] / coefficients[0]}
		}
		if len(columns) == 3 {
			break // with nothing left out there is no better fit
		}
	}
	if math.IsInf(best, 1) {
		return USL{}, fmt.Errorf("no coefficients >= 0 fit the points")
	}
	return found, nil
}

// spread returns the standard deviation of a sample within its point, over all points.
func spread(levels []level) float64 {
	sum, free := 0.0, 0
	for _, l := range levels {
		for _, x := range l.samples {
			sum += (x/l.mean - 1) * (x/l.mean - 1)
		}
		free += len(l.samples) - 1
	}
	if free == 0 {
		return 0
	}
	return math.Sqrt(sum / float64(free))
}

// bootstrap refits resamples made of the line and its own residuals.
func (f *Fit) bootstrap(levels []level, residuals []float64, rnd *rand.Rand) error {
	var all [5][]float64
	again := slices.Clone(levels)
	for range resamples {
		for i, l := range levels {
			r := residuals[rnd.IntN(len(residuals))] / math.Sqrt(l.weight())
			again[i].mean = f.At(l.users) * max(1+r, 0.01) // a throughput is above 0
		}
		u, err := solve(again)
		if err != nil {
			continue
		}
		for i, v := range []float64{u.Lambda, u.Sigma, u.Kappa, u.Peak(), u.Knee()} {
			all[i] = append(all[i], v)
		}
	}
	if len(all[0]) < resamples/2 {
		return fmt.Errorf("its bootstrap failed %d times of %d", resamples-len(all[0]), resamples)
	}
	for i, to := range []*Range{&f.LambdaRange, &f.SigmaRange, &f.KappaRange, &f.PeakRange, &f.KneeRange} {
		slices.Sort(all[i])
		mid := []float64{f.Lambda, f.Sigma, f.Kappa, f.Peak(), f.Knee()}[i]
		*to = Range{
			mid, stat.Quantile((1-confidence)/2, stat.Empirical, all[i], nil),
			stat.Quantile((1+confidence)/2, stat.Empirical, all[i], nil),
		}
	}
	return nil
}
