package report

import (
	"github.com/lockquake/lockquake/results/figure"
)

// judged writes a count, or says that there is none.
func judged(n *int64) string {
	if n == nil {
		return notJudged
	}
	return figure.Count(*n)
}

// measured writes a measure, or says that there is none.
func measured(f *float64) string {
	if f == nil {
		return notJudged
	}
	return figure.Number(*f)
}

// exact writes a figure that an expectation was held against, without rounding, because it decided.
func exact(f *float64) string {
	if f == nil {
		return notJudged
	}
	return figure.Exact(*f)
}

// notJudged stands where a null is: never a zero.
const notJudged = "not judged"
