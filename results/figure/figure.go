// Package figure formats numbers for people, always in the same way: 36,312; 1 grant; 790.9 ms.
package figure

import (
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
)

// Count formats a whole number.
func Count[N ~int | ~int64](n N) string { return humanize.Comma(int64(n)) }

// Of formats a number of things; thing is the singular.
func Of[N ~int | ~int64](n N, thing string) string { return english.Plural(int(n), thing, "") }

// Number formats a number: with decimals if it is small, as a whole number from 1,000 on.
func Number(f float64) string {
	decimals := 3
	switch abs := math.Abs(f); {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return "not known"
	case f == math.Trunc(f) || abs >= 1000:
		decimals = 0
	case abs >= 10:
		decimals = 1
	case abs >= 1:
		decimals = 2
	case abs < 0.01:
		return strconv.FormatFloat(f, 'g', 2, 64)
	}
	return thousands(strconv.FormatFloat(f, 'f', decimals, 64))
}

// Exact formats a number without rounding it.
func Exact(f float64) string { return thousands(strconv.FormatFloat(f, 'f', -1, 64)) }

// thousands adds thousands separators to a decimal number.
func thousands(s string) string {
	whole, fraction, broken := strings.Cut(s, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n == 0 { // it may have a sign
		return s
	}
	if broken {
		return humanize.Comma(n) + "." + fraction
	}
	return humanize.Comma(n)
}

// Duration formats ns with their unit.
func Duration(ns int64) string { return Milli(float64(ns) / 1e6) }

// Milli formats ms with their unit.
func Milli(ms float64) string {
	switch abs := math.Abs(ms); {
	case abs == 0:
		return "0 ms"
	case abs < 1:
		return Number(ms*1e3) + " µs"
	case abs < 1000:
		return Number(ms) + " ms"
	}
	return Number(ms/1e3) + " s"
}

// Samples returns how many samples a quantile needs to be shown: two are expected beyond it, which makes 20 for p90,
// 200 for p99 and 2,000 for p99.9. A median needs two samples. With fewer, the quantile would just be the slowest
// sample.
func Samples(quantile float64) int64 {
	if quantile <= 0.5 {
		return 2
	}
	return int64(math.Ceil(2/(1-quantile) - 1e-6))
}
