package story

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results/figure"
)

// outcome describes an operation that did not simply succeed, in a few words and in a sentence.
func (mk lockMarker) outcome(e history.Event, f *history.Event) (short, long string) {
	switch {
	case f == nil && mk.died(e):
		return "its process dies", "its process dies before an answer"
	case f == nil:
		return "never ends", "never ends"
	case f.Phase == history.Ok:
		return "", ""
	}
	if r, ok := mk.scene.ReasonOf(*f); ok {
		short, long = causeWords(r, *f)
		if dead := mk.scene.Env.Majority.Dead(mk.scene.Faults, e.Time, f.Time); r.Code == history.CauseNoMajority &&
			len(dead) > 0 {
			long += ", where " + figure.List(dead) + " " + are(len(dead)) + " dead"
		}
		return short, long
	}
	if unanswered[f.Code] {
		majority, client := mk.scene.Env.Majority, history.ClientName(e.User.Client())
		if left, missing := majority.Missing(mk.scene.Faults, client, e.Time, f.Time); missing {
			return "no majority", "no majority: it reaches " + majority.Left(left)
		}
	}
	return outcome(f)
}

// unanswered has the error classes of requests that servers did not answer, or cannot serve.
var unanswered = map[uint8]bool{
	history.CodeTimeout: true, history.CodeConnection: true, history.CodeUnavailable: true,
	history.CodeOther: true,
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// died reports whether the process that asked died before it had an answer: killed by a fault, at a point, or by
// itself.
func (mk lockMarker) died(e history.Event) bool {
	return mk.killed(history.ClientName(e.User.Client()), e.Time) ||
		slices.ContainsFunc(mk.scene.Events, func(d history.Event) bool {
			return d.Kind == history.Dead && d.User.Client() == e.User.Client() && d.Time >= e.Time
		})
}

// killed reports whether a client was killed by a fault, or died at a point, and was not gone before a time.
func (mk lockMarker) killed(node string, from int64) bool {
	return slices.ContainsFunc(mk.scene.Faults, func(f history.Fault) bool {
		return f.Traits.Kills && max(f.Start, f.Bit) >= from && slices.Contains(f.Targets, node)
	}) || slices.ContainsFunc(mk.scene.Seen, func(o history.Observation) bool {
		return o.By == history.ByPoint && o.Answer == history.PointDied && o.Node == node && o.Answered >= from
	})
}

// outcome describes an operation that did not succeed, without a recorded reason.
func outcome(f *history.Event) (short, long string) {
	word := func(s string) (string, string) { return s, s }
	switch certain := f.Phase == history.Fail; {
	case certain && f.Code == history.CodeContended:
		return word("it is held")
	case certain && f.Code == history.CodeCancelled:
		return word("given up")
	case certain && f.Code == history.CodeConnection:
		return "no connection", "no connection could be made"
	case f.Code == history.CodeConnection:
		return "connection breaks", "the connection breaks; the outcome is unknown"
	case certain && f.Code == history.CodeUnavailable:
		return "refused by the service", "the service reports that it cannot serve"
	case certain:
		return word(strings.ReplaceAll(history.CodeName(f.Code), "-", " "))
	case f.Code == history.CodeTimeout:
		return word("no answer")
	}
	return word("nobody knows")
}
