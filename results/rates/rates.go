// Package rates estimates how often something happens: figures with intervals of 95 %, also for events that come in
// bunches.
package rates

import (
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// tail is the probability beyond each end of an interval.
const tail = 0.025

// Estimate is a figure and its interval of 95 %.
type Estimate struct{ Value, Low, High float64 }

// Over returns the estimate divided by n.
func (e Estimate) Over(n float64) Estimate { return Estimate{e.Value / n, e.Low / n, e.High / n} }

// Share estimates the share of trials with events, k of n. Its interval is exact: quantiles of beta distributions
// (Clopper and Pearson, Biometrika 26, 1934).
func Share(k, n int) Estimate {
	e := Estimate{Value: float64(k) / float64(n), High: 1}
	if k > 0 {
		e.Low = distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(tail)
	}
	if k < n {
		e.High = distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(1 - tail)
	}
	return e
}

// Bunched is the rate of events that are not independent of each other: a trial has none of them, or a bunch.
type Bunched struct {
	Share Estimate  // trials that had any, of all
	Size  *Estimate // events of a trial with any; nil if none had any: the value is unknown
	Rate  Estimate  // events for each trial
}

// Few is the number of trials with events that must have been observed before the sizes of their bunches are taken as
// typical.
const Few = 5

// Bunches estimates the rate of events per trial. most is the maximum of events of one trial.
//
// The interval of the size is a bootstrap over the trials that had any (Efron and Tibshirani, "An Introduction to the
// Bootstrap", chapter 13). With few of these, the size is only known to lie between 1 and most. The interval of the
// rate combines those of share and size, as if both were measured separately: on logarithms, the distances of both
// ends are added like the sides of a right angle (Zou, Huang and Zhang, Computational Statistics & Data Analysis 53,
// 2009).
//
// A sample says nothing of a kind of bunch that it lacks. Trials of an unseen kind may have a share up to the upper
// end of 0 of n, with most events each: both upper ends add these. So no rate has a lower upper end than one without
// observed events.
//
// Example: 75 locks were granted twice after one failover of 110, and none after the others; 150 were held at each.
// That is 0.68 a failover, and the interval shows how little one failover proves: from 0.02 % of them with one lock
// each, to 5 % with all 150, which is 7.4. Another example: after 98 failovers of 100 it was 4.7 locks, of 150. That
// is 4.6, from 4.2 to 10.6: 3.6 % may be such that all 150 are granted twice.
func Bunches(trials []int64, most float64) Bunched {
	var sizes []float64
	for _, n := range trials {
		if n > 0 {
			sizes = append(sizes, float64(n))
		}
	}
	b := Bunched{Share: Share(len(sizes), len(trials))}
	if len(sizes) == 0 {
		b.Rate.High = b.Share.High * most
		return b
	}
	most = max(most, slices.Max(sizes))
	size := Estimate{stat.Mean(sizes, nil), 1, most}
	b.Size = &size
	b.Rate = Estimate{b.Share.Value * size.Value, b.Share.Low, b.Share.High * most}
	if len(sizes) < Few {
		return b
	}
	size.Low, size.High = resampled(sizes)
	apart := func(share, size float64) float64 {
		return b.Rate.Value * math.Exp(math.Hypot(math.Log(share/b.Share.Value), math.Log(size/b.Size.Value)))
	}
	unseen := func(n int) float64 { return Share(0, n).High * most }
	b.Rate.Low = max(b.Rate.Low, b.Rate.Value*b.Rate.Value/apart(b.Share.Low, size.Low))
	b.Rate.High = min(b.Rate.High, apart(b.Share.High, size.High)+unseen(len(trials)))
	size.High = min(most, size.High+unseen(len(sizes)))
	return b
}

// resamples is the number of draws of a bootstrap.
const resamples = 1000

// resampled returns the interval of the mean of sizes by the percentiles of a bootstrap. The same sizes have the same
// interval.
func resampled(sizes []float64) (low, high float64) {
	draw := rand.New(rand.NewPCG(uint64(len(sizes)), resamples))
	means := make([]float64, resamples)
	for i := range means {
		for range sizes {
			means[i] += sizes[draw.IntN(len(sizes))]
		}
		means[i] /= float64(len(sizes))
	}
	slices.Sort(means)
	return stat.Quantile(tail, stat.Empirical, means, nil), stat.Quantile(1-tail, stat.Empirical, means, nil)
}
