package results

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
)

// Lost is a process that ended without a final report although no fault asked for that. Its actions after its last
// event are unknown. Example: a host is cut off at 5 s. Until then its client's events arrive, and it holds lock-0.
// Whether it released lock-0 at 6 s, wrote at 7 s or was granted another lock is unknown.
type Lost struct {
	Name  string
	Host  string               // if there are several; else ""
	Ended string               // how its process was observed to end; "" if unobserved, so it may have gone on
	Last  int64                // ns: the time of its last event; 0 if none came
	Open  map[openGrant]uint16 // the grants its users then held: the locks
}

// openGrant is a grant that a user holds.
type openGrant struct {
	user  history.User
	grant uint32
}

// hear takes the next event of the process.
func (l *Lost) hear(e *history.Event) {
	l.Last = e.Time
	switch {
	case e.Kind == history.Acquire && e.Phase == history.Ok:
		l.Open[openGrant{e.User, e.Op}] = e.Lock
	case e.Kind == history.Release, e.Kind == history.Lost: // the outcome, too: the invoke may have been dropped
		delete(l.Open, openGrant{e.User, e.Grant})
	}
}

// maxOpenNamed bounds the number of named grants of a lost process.
const maxOpenNamed = 4

// reason says what cannot be judged of the process.
func (l *Lost) reason(r Run) string {
	text := l.Name
	if l.Host != "" {
		text += " on host " + l.Host
	}
	text += " ended without its final message"
	_, client := history.ClientOf(l.Name)
	switch {
	case l.Last == 0:
		return text + "; it sent no event"
	case l.Ended != "":
		text += " (" + l.Ended + ")"
	case client:
		text += ", and the end of its process was not seen: it may have gone on"
	}
	text += fmt.Sprintf("; its actions after its last event, at %s, cannot be judged", r.MS(l.Last))
	if len(l.Open) == 0 {
		return text
	}
	var open []string
	for _, g := range slices.SortedFunc(maps.Keys(l.Open), func(a, b openGrant) int {
		return cmp.Or(cmp.Compare(a.user, b.user), cmp.Compare(a.grant, b.grant))
	})[:min(len(l.Open), maxOpenNamed)] {
		open = append(open, fmt.Sprintf("%s (grant %d of %v)", r.LockName(l.Open[g]), g.grant, g.user))
	}
	if more := len(l.Open) - len(open); more > 0 {
		open = append(open, fmt.Sprintf("and %d more", more))
	}
	return text + ", nor the grants that it held then: " + strings.Join(open, ", ")
}

// unprove makes a finding unknown if the missing events of lost processes could refute it: a zero, or a count of what
// did not happen. A violation proved by the received events stays. Kinds without counts are unaffected, and lost
// resource processes do not affect kinds that look at clients only.
func unprove(f *Finding, k CheckerKind, lost []Lost) {
	if len(k.Counts) == 0 || f.Verdict == Unknown {
		return
	}
	for _, q := range k.Counts {
		if n := f.Counts[q.Name]; f.Verdict == Violated && n != nil && *n > 0 && !q.NeedsAll {
			return
		}
	}
	for _, l := range lost {
		if _, client := history.ClientOf(l.Name); client || k.Resource {
			f.Verdict, f.Missing = Unknown, append(f.Missing, l.Name)
		}
	}
}
