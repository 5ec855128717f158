package capacity

import (
	"math"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
)

// notKnown replaces a missing figure, which is never shown as zero.
const notKnown = "not known"

// percent writes a share.
func percent(f float64) string { return strconv.FormatFloat(100*f, 'f', 0, 64) + " %" }

// span formats ms with their bounds, such as "14.8 ms (14.2 to 15.1)"; "-" without a figure.
func span(i Interval) string { return bracketed(spanParts(i)) }

// spanParts returns the formatted ms and their bounds; "" without a figure.
func spanParts(i Interval) (middle, bounds string) {
	mid, low, high := figure.Milli(i.Mid), figure.Milli(i.Low), figure.Milli(i.High)
	switch {
	case i.N == 0:
		return "-", ""
	case i.N == 1 || low == high:
		return mid, ""
	}
	_, unit, _ := strings.Cut(mid, " ")
	if strings.HasSuffix(low, " "+unit) && strings.HasSuffix(high, " "+unit) { // the unit of the median is enough
		low, high = strings.TrimSuffix(low, " "+unit), strings.TrimSuffix(high, " "+unit)
	}
	return mid, low + " to " + high
}

// bracketed formats a figure followed by its bounds.
func bracketed(middle, bounds string) string {
	if bounds == "" {
		return middle
	}
	return middle + " (" + bounds + ")"
}

// dotted formats the name of a quantile for people: p99.9 for p999.
func dotted(name string) string {
	if len(name) > 3 {
		return name[:3] + "." + name[3:]
	}
	return name
}

// round rounds a figure for planning down to two digits, so that it never promises more.
func round(f float64) float64 {
	if !(f > 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(f))-1)
	return math.Floor(f/unit+1e-9) * unit
}
