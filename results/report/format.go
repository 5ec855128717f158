package report

import (
	"github.com/lockquake/lockquake/results/figure"
)

// judged formats a count, or says that it was not judged.
func judged(n *int64) string {
	if n == nil {
		return notJudged
	}
	return figure.Count(*n)
}

// measured formats a measure, or says that it was not judged.
func measured(f *float64) string {
	if f == nil {
		return notJudged
	}
	return figure.Number(*f)
}

// exact formats the figure of an expectation without rounding, because it decided.
func exact(f *float64) string {
	if f == nil {
		return notJudged
	}
	return figure.Exact(*f)
}

// notJudged replaces a null, which is never shown as zero.
const notJudged = "not judged"
