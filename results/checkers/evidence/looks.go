package evidence

import "github.com/lockquake/lockquake/results"

// Looks counts a checker's comparisons, so that no history can keep it busy for ever: with n holds open at once, the
// next one is compared with n others.
type Looks struct{ Made, Most int }

// Take takes n looks, and reports whether as many were left.
func (l *Looks) Take(n int) bool {
	l.Made += n
	return l.Made <= l.Most
}

// Bound says, if looks were left out, that the count is a lower bound. Then a zero is no answer.
func (l *Looks) Bound(f *results.Finding, found int64, why string) {
	if l.Made <= l.Most {
		return
	}
	f.Warnings = append(f.Warnings, why)
	if found == 0 {
		f.Verdict = results.Unknown
	}
}
