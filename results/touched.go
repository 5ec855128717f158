package results

import (
	"slices"

	"github.com/lockquake/lockquake/history"
)

// touch is an effect that the resource served, and the hold that it belongs to.
type touch struct {
	hold  *hold
	event history.Event
}

// touched is what is remembered of all holds that have read or written under one lock: not the holds, of which there
// are too many, but those that decide every question that can still come. By mode: exclusive, shared.
type touched struct{ modes [2]touchedMode }

type touchedMode struct {
	issued touch    // of the hold whose request was sent last
	starts [2]touch // of the two holds that were granted last
	// stairs are the holds which no other one exceeds in both the time of the grant and the token: the earlier the
	// grant, the higher the token. Where tokens grow with the grants there is one.
	stairs []touch
}

// add remembers an effect. Of each hold the first one counts.
func (l *touched) add(t touch) {
	m := &l.modes[min(t.hold.mode, 1)]
	if m.issued.hold == nil || t.hold.issued > m.issued.hold.issued {
		m.issued = t
	}
	switch a, b := &m.starts[0], &m.starts[1]; {
	case a.hold == t.hold || b.hold == t.hold:
	case a.hold == nil || t.hold.start > a.hold.start:
		*b, *a = *a, t
	case b.hold == nil || t.hold.start > b.hold.start:
		*b = t
	}
	m.climb(t)
}

// climb puts t among the stairs, unless one of them exceeds it, and takes out those that it exceeds.
func (m *touchedMode) climb(t touch) {
	for i := range m.stairs {
		if h := m.stairs[i].hold; h == t.hold || h.start >= t.hold.start && h.token >= t.hold.token {
			return
		}
	}
	m.stairs = slices.DeleteFunc(m.stairs, func(s touch) bool {
		return s.hold.start <= t.hold.start && s.hold.token <= t.hold.token
	})
	m.stairs = append(m.stairs, t)
}

// besides returns the effect of the hold that was granted last, h excepted.
func (m *touchedMode) besides(h *hold) *touch {
	for i := range m.starts {
		if t := &m.starts[i]; t.hold != nil && t.hold != h {
			return t
		}
	}
	return nil
}
