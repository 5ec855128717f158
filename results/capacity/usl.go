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

// USL is Gunther's Universal Scalability Law: X(N) = λN / (1 + σ(N-1) + κN(N-1)), with λ the throughput of one user, σ
// the part of the work that is serial (contention), and κ the cost of agreeing with every other (coherency). None is
// below 0. Source: N. J. Gunther, Guerrilla Capacity Planning, Springer 2007, chapters 4 to 6.
type USL struct {
	Lambda float64 `json:"lambda"`
	Sigma  float64 `json:"sigma"`
	Kappa  float64 `json:"kappa"`
}

// At is the throughput of n users.
func (u USL) At(n float64) float64 {
	return u.Lambda * n / (1 + u.Sigma*(n-1) + u.Kappa*n*(n-1))
}

// Peak is how many users have the highest throughput, sqrt((1-σ)/κ), by Gunther. It is +Inf where κ is 0: the curve
// then only flattens.
func (u USL) Peak() float64 {
	if u.Sigma >= 1 {
		return 1
	}
	return max(1, math.Sqrt((1-u.Sigma)/u.Kappa))
}

// Knee is where the curve bends: how many users a lock that scales without loss (λN) would need for the highest
// throughput of this one. That is the saturation point of operational analysis (Denning and Buzen 1978): 1/σ where κ is
// 0. It is +Inf where nothing bends.
func (u USL) Knee() float64 {
	if peak := u.Peak(); !math.IsInf(peak, 1) {
		return u.At(peak) / u.Lambda
	}
	return 1 / u.Sigma
}

// Range is a figure of the fit with its bootstrap interval of 95 %. High is +Inf where the interval has no end.
type Range struct{ Mid, Low, High float64 }

// Fit is a USL that explains a curve.
type Fit struct {
	USL
	LambdaRange, SigmaRange, KappaRange Range
	PeakRange, KneeRange                Range
	// Miss and WorstMiss are how far the line is from the points, in parts of the throughput: the root of the mean
	// square, and the most.
	Miss, WorstMiss float64
	// Spread is the standard deviation of a sample within its point, in parts of the throughput; 0 where no point has
	// two.
	Spread float64
	Points int
	// From and To are the users of the first and the last point that the fit rests on.
	From, To int
}

// What a fit needs. A line has three coefficients: over four points it could hardly miss.
const (
	leastPoints = 5
	// mostMiss is how far the line may be from the points, unless the samples themselves are spread that far.
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

// fit explains levels by the law; the error says in words why it cannot.
func fit(levels []level, rnd *rand.Rand) (*Fit, error) {
	if len(levels) < leastPoints {
		return nil, fmt.Errorf("%s can be used; a fit needs %d", figure.Of(len(levels), "point"), leastPoints)
	}
	slices.SortFunc(levels, func(a, b level) int { return int(a.users - b.users) })
	for i := range levels {
		levels[i].mean = stat.Mean(levels[i].samples, nil)
		if !(levels[i].mean > 0) {
			return nil, fmt.Errorf("with %g users nothing was done", levels[i].users)
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
	// The residuals are made those of one sample, the freedom that three coefficients took is given back, and what so
	// few residuals say of their own spread is widened as in Student's t.
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
		return nil, fmt.Errorf("the line would miss the points by %s on average; up to %s is a fit (samples of one point differ by %s)", percent(f.Miss), percent(most), percent(f.Spread))
	}
	return f, f.bootstrap(levels, residuals, rnd)
}

// solve finds the coefficients by weighted least squares. N/X = (1/λ)(1 + σ(N-1) + κN(N-1)) is linear in 1/λ, σ/λ and
// κ/λ; weighed by X/N, its residuals are those of the throughput in parts of itself. So there is one minimum, and it
// needs no start. A coefficient that would be below 0 is left out: of the four ways to do so, the one with the smallest
// residuals is taken.
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
			continue // a column says what another does, as with users that are all the same
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
			break // with nothing left out there is no better one
		}
	}
	if math.IsInf(best, 1) {
		return USL{}, fmt.Errorf("no coefficients from 0 on fit the points")
	}
	return found, nil
}

// spread is the standard deviation of a sample within its point, over all points.
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

// bootstrap fits again and again what the line and its own residuals could have given.
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
