package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

// Clocks tell how wrong the times of the clients' events may be: by index the headers of those whose clock is not the
// run's. It is empty where all clocks are one.
type Clocks []*history.Header

// Clocks are those of the run's clients.
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

// Of is the clock of a user; nil where it is right.
func (cs Clocks) Of(u history.User) *history.Header {
	if c := u.Client(); c < len(cs) {
		return cs[c]
	}
	return nil
}

// Late is the latest that a time told by a user can be; Forever stays.
func (cs Clocks) Late(u history.User, t int64) int64 { return Late(cs.Of(u), t) }

// Early is the earliest that a time told by a user can be; Forever stays.
func (cs Clocks) Early(u history.User, t int64) int64 { return Early(cs.Of(u), t) }

// Late is the latest that a time of a clock can be. A nil clock is right.
func Late(clock *history.Header, t int64) int64 {
	if clock == nil || t == Forever {
		return t
	}
	return t + clock.Error(t)
}

// Early is the earliest that a time of a clock can be. A nil clock is right.
func Early(clock *history.Header, t int64) int64 {
	if clock == nil || t == Forever {
		return t
	}
	return t - clock.Error(t)
}

// ReportClocks is how well times of several clocks compare, and what that left open.
type ReportClocks struct {
	Compared   int     `json:"compared"`     // processes whose clock was compared with the run's
	MaxErrorMS float64 `json:"max_error_ms"` // by how much the time of an event may be wrong, at most
	// pairs of holds whose order lies within the errors; null: not judged
	UnsurePairs *int64 `json:"unsure_pairs"`
	// grants that followed a conflicting hold of another user, each of which makes a pair at least
	UnsureOf   int64  `json:"unsure_of"`
	Unordered  *int64 `json:"unordered_effects"`     // as among the counts
	ByResource bool   `json:"by_resource,omitempty"` // the resource's own order of arrival is a witness, too
}

// Text says it for people, in a sentence.
func (c ReportClocks) Text() string {
	text := fmt.Sprintf("%d of the run's clocks were compared with the engine's, and times err by %.3f ms at most. Overlaps are judged by the users' intervals, narrowed by that", c.Compared, c.MaxErrorMS)
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
