package main

import (
	"github.com/aclements/go-moremath/mathx"
	"github.com/aclements/go-moremath/stats"
)

// clopperPearson returns the exact two-sided interval, 95 %, of the rate of which k of n trials are seen: the ends are quantiles of beta
// distributions (Clopper and Pearson, Biometrika 26, 1934).
func clopperPearson(k, n int64) (low, high float64) {
	const tail = 0.025
	low, high = 0, 1
	if k > 0 {
		low = stats.InvCDF(beta{float64(k), float64(n - k + 1)})(tail)
	}
	if k < n {
		high = stats.InvCDF(beta{float64(k + 1), float64(n - k)})(1 - tail)
	}
	return low, high
}

// beta is the beta distribution, which the library has as a function only.
type beta struct{ a, b float64 }

// CDF is the regularized incomplete beta function.
func (d beta) CDF(x float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= 1:
		return 1
	}
	return mathx.BetaInc(x, d.a, d.b)
}

// Bounds is where it has weight.
func (beta) Bounds() (low, high float64) { return 0, 1 }
