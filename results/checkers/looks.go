package checkers

import "github.com/lockquake/lockquake/results"

// looks counts how often a checker held two things against each other, so that a history cannot keep it busy for ever:
// where n holds are open at once, the next one is held against n others.
type looks struct{ made, most int }

// take takes n looks, and tells whether there were as many left.
func (l *looks) take(n int) bool {
	l.made += n
	return l.made <= l.most
}

// bound says, where looks were left out, that what was found is a lower bound. Nothing found is no answer then.
func (l *looks) bound(f *results.Finding, found int64, why string) {
	if l.made <= l.most {
		return
	}
	f.Warnings = append(f.Warnings, why)
	if found == 0 {
		f.Verdict = results.Unknown
	}
}
