package report

import (
	"strconv"
	"strings"
)

// duration writes ns for people, with three figures.
func duration(ns int64) string {
	switch abs := max(ns, -ns); {
	case abs < 1_000_000:
		return Figures(float64(ns)/1e3) + " µs"
	case abs < 1_000_000_000:
		return Figures(float64(ns)/1e6) + " ms"
	}
	return Figures(float64(ns)/1e9) + " s"
}

// Figures writes a number with some decimals where it is small, and as a whole number from 1000 on.
func Figures(f float64) string {
	switch abs := max(f, -f); {
	case f == float64(int64(f)) || abs >= 1000:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	case abs >= 1:
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
	return strconv.FormatFloat(f, 'f', 3, 64)
}

// capital begins a sentence.
func capital(text string) string {
	n := min(1, len(text))
	return strings.ToUpper(text[:n]) + text[n:]
}

// count writes a whole number with spaces between thousands.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + " " + s[i:]
	}
	return sign + s
}

// words turns a name of a count or measure into words.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }

// judged writes a count, or says that there is none.
func judged(n *int64) string {
	if n == nil {
		return notJudged
	}
	return count(*n)
}

// measured writes a measure, or says that there is none.
func measured(f *float64) string {
	if f == nil {
		return notJudged
	}
	return Figures(*f)
}

// exact writes a figure that an expectation was held against, without rounding, because it decided.
func exact(f *float64) string {
	if f == nil {
		return notJudged
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

// notJudged stands where a null is: never a zero.
const notJudged = "not judged"
