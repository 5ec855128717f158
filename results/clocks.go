package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

// Clocks gives the errors of the times in clients' events. Its elements are, by client index, the headers of the
// clients whose clock is not the run's. It is empty if there is only one clock.
type Clocks []*history.Header

// Clocks returns the clocks of the run's clients.
func (r *Run) Clocks() Clocks {
	var cs Clocks
	for i := range r.Processes {
		p := &r.Processes[i]
		if c, ok := history.ClientOf(p.Process); ok && !p.Exact() {
			cs = append(cs, make(Clocks, max(0, c+1-len(cs)))...)
			cs[c] = p
		}
	}
	return cs
}

// Of returns the clock of a user; nil if it is the run's.
func (cs Clocks) Of(u history.User) *history.Header {
	if c := u.Client(); c < len(cs) {
		return cs[c]
	}
	return nil
}

// Late returns the latest possible value of a user's time; Forever stays.
func (cs Clocks) Late(u history.User, t int64) int64 { return Late(cs.Of(u), t) }

// Early returns the earliest possible value of a user's time; Forever stays.
func (cs Clocks) Early(u history.User, t int64) int64 { return Early(cs.Of(u), t) }

// Late returns the latest possible value of a clock's time. A nil clock is exact.
func Late(clock *history.Header, t int64) int64 {
	if clock == nil || t == Forever {
		return t
	}
	return t + clock.Error(t)
}

// Early returns the earliest possible value of a clock's time. A nil clock is exact.
func Early(clock *history.Header, t int64) int64 {
	if clock == nil || t == Forever {
		return t
	}
	return t - clock.Error(t)
}

// ReportClocks describes the comparison of several clocks, and what it leaves undecided.
type ReportClocks struct {
	Compared   int     `json:"compared"`     // processes whose clock was compared with the run's
	MaxErrorMS float64 `json:"max_error_ms"` // maximum error of an event's time
	// pairs of holds whose order lies within the errors; null: not judged
	UnsurePairs *int64 `json:"unsure_pairs"`
	// grants that followed a conflicting hold of another user; each makes at least one pair
	UnsureOf   int64  `json:"unsure_of"`
	Unordered  *int64 `json:"unordered_effects"`     // as among the counts
	ByResource bool   `json:"by_resource,omitempty"` // the resource's own order of arrival is also evidence
}

// Text returns a sentence for people.
func (c ReportClocks) Text() string {
	text := fmt.Sprintf("%d of the run's clocks were compared with the engine's; the error of times is at most %.3f ms. Overlaps are judged by the users' intervals, narrowed by that error", c.Compared, c.MaxErrorMS)
	if c.UnsurePairs != nil {
		text += fmt.Sprintf(": the order of %d pairs of holds lies within it, for %d grants that followed another user's", *c.UnsurePairs, c.UnsureOf)
		if c.UnsureOf > 0 {
			text += fmt.Sprintf(" (%.3g %%)", 100*float64(*c.UnsurePairs)/float64(c.UnsureOf))
		}
		text += ", and they count as possible_overlaps alone"
	}
	switch {
	case !c.ByResource:
	case c.Unordered != nil && *c.Unordered > 0:
		text += fmt.Sprintf(". Stale writes are judged by the resource's own order of arrival; %d effects are unordered", *c.Unordered)
	default:
		text += ". Stale writes are judged by the resource's own order of arrival"
	}
	return text
}
