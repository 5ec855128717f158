package capacity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// notKnown stands where there is no figure: never a zero.
const notKnown = "not known"

// number writes a number with at least two digits that count, and thousands apart.
func number(f float64) string {
	abs := math.Abs(f)
	decimals := 0
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return notKnown
	case abs == 0 || abs >= 100:
	case abs >= 10:
		decimals = 1
	case abs >= 1:
		decimals = 2
	default:
		return strconv.FormatFloat(f, 'g', 2, 64)
	}
	s := strconv.FormatFloat(f, 'f', decimals, 64)
	if decimals > 0 {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	for i := len(s) - 3; decimals == 0 && i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent writes a share.
func percent(f float64) string { return strconv.FormatFloat(100*f, 'f', 0, 64) + " %" }

// milli writes ms for people.
func milli(ms float64) string {
	switch abs := math.Abs(ms); {
	case abs == 0:
		return "0"
	case abs < 1:
		return number(ms*1e3) + " µs"
	case abs < 1000:
		return number(ms) + " ms"
	}
	return number(ms/1e3) + " s"
}

// span writes ms with their bounds, such as "14.8 ms (14.2 to 15.1)"; "-" where there are none.
func span(i Interval) string {
	mid, low, high := milli(i.Mid), milli(i.Low), milli(i.High)
	switch {
	case i.N == 0:
		return "-"
	case i.N == 1 || low == high:
		return mid
	}
	_, unit, _ := strings.Cut(mid, " ")
	if strings.HasSuffix(low, " "+unit) && strings.HasSuffix(high, " "+unit) { // that of the median says it for all
		low, high = strings.TrimSuffix(low, " "+unit), strings.TrimSuffix(high, " "+unit)
	}
	return fmt.Sprintf("%s (%s to %s)", mid, low, high)
}

// dotted writes the name of a quantile for people: p99.9 for p999.
func dotted(name string) string {
	if len(name) > 3 {
		return name[:3] + "." + name[3:]
	}
	return name
}

// duration writes ns for people.
func duration(ns int64) string { return milli(float64(ns) / 1e6) }

// round keeps two digits of a figure that is to be planned with: it never promises more.
func round(f float64) float64 {
	if !(f > 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(f))-1)
	return math.Floor(f/unit+1e-9) * unit
}

// plural writes a number of things.
func plural(n int, thing string) string {
	s := number(float64(n)) + " " + thing
	if n != 1 {
		s += "s"
	}
	return s
}
