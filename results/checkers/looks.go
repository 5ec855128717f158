package checkers

import "github.com/lockquake/lockquake/results"

// looks counts a checker's comparisons, so that no history can keep it busy for ever: with n holds open at once, the
// next one is compared with n others.
type looks struct{ made, most int }

// take takes n looks, and reports whether as many were left.
func (l *looks) take(n int) bool {
	l.made += n
	return l.made <= l.most
}

// bound says, if looks were left out, that the count is a lower bound. Then a zero is no answer.
func (l *looks) bound(f *results.Finding, found int64, why string) {
	if l.made <= l.most {
		return
	}
	f.Warnings = append(f.Warnings, why)
	if found == 0 {
		f.Verdict = results.Unknown
	}
}
