package scene

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type key struct {
	user  history.User
	grant uint32
}

// holdsOf lists the holds in the events, in the order of their start.
func holdsOf(events []history.Event) []results.HoldRef {
	var out []results.HoldRef
	for i := range events {
		e := &events[i]
		if e.Kind == history.Acquire && e.Phase == history.Ok {
			out = append(out, refOf(e))
			continue
		}
		for j := range out {
			if h := &out[j]; h.User == e.User && (h.Grant == e.Grant || e.Grant == 0 &&
				(e.Kind == history.Lost || e.Kind == history.Dead)) {
				follow(h, e)
			}
		}
	}
	return out
}

// follow updates the end of a hold and of its validity.
func follow(h *results.HoldRef, e *history.Event) {
	switch {
	case h.End != 0:
	case e.Kind == history.Release && e.Phase == history.Invoke, e.Kind == history.Lost:
		h.End = e.Time
	case e.Kind == history.Dead:
		h.End = max(e.Value, h.Start)
	case e.Kind == history.Ended:
		h.Valid = e.Valid
	case e.Kind == history.Renewed, (e.Kind == history.Renew || e.Kind == history.Reenter) && e.Phase == history.Ok:
		h.Valid = max(h.Valid, e.Valid)
	}
}

// refOf returns the hold that a grant began.
func refOf(e *history.Event) results.HoldRef {
	return results.HoldRef{User: e.User, Grant: e.Op, Issued: e.Value, Start: e.Time, Valid: e.Valid, Token: e.Token}
}

// IsEffect reports whether the resource did or refused something. Effects of a mere minority of its replicas do not
// count.
func IsEffect(e history.Event) bool {
	return (e.Kind == history.EffectRead || e.Kind == history.EffectWrite) && e.Phase != history.Info
}
