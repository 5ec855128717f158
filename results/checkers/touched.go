package checkers

import (
	"slices"
	"sort"
)

// maxTouches bounds the remembered holds of one lock that have read or written.
const maxTouches = 256

// touched is the memory of the holds that have read or written under one lock.
type touched struct {
	modes   [2]touchedMode // exclusive, shared
	writes  int64          // that were applied
	written effect         // the latest of them
}

// touchedMode has the first effect of each hold.
type touchedMode struct {
	issued effect // of the hold with the certainly latest request
	fresh  effect // of the hold that certainly came into hand last, among those entitled at their start
	// latest are the most recently granted holds, in the order of start. For older holds only two times are kept: the
	// latest grant among them, and the latest end.
	latest       []effect
	droppedStart int64
	droppedOver  int64
}

// add adds an effect. The first effect of each hold counts.
func (l *touched) add(t effect) {
	if t.hold.served {
		return
	}
	t.hold.served = true
	m := &l.modes[min(t.hold.mode, 1)]
	if h := m.issued.hold; h == nil || t.hold.earliest(t.hold.issued) > h.earliest(h.issued) {
		m.issued = t
	}
	if h := m.fresh.hold; t.hold.fresh && (h == nil || t.hold.earliest(t.hold.start) > h.earliest(h.start)) {
		m.fresh = t
	}
	i := sort.Search(len(m.latest), func(i int) bool { return m.latest[i].hold.start > t.hold.start })
	m.latest = slices.Insert(m.latest, i, t)
	if len(m.latest) > maxTouches {
		for _, old := range m.latest[:maxTouches/2] {
			m.droppedStart = max(m.droppedStart, old.hold.latest(old.hold.start))
			m.droppedOver = max(m.droppedOver, old.hold.latest(old.hold.overAt()))
		}
		m.latest = slices.Delete(m.latest, 0, maxTouches/2)
	}
}

// after returns the effect of a hold that came after h by time, or nil.
func (m *touchedMode) after(h *accessor) *effect {
	for _, t := range []*effect{&m.issued, &m.fresh} {
		if t.hold != nil && t.hold != h && before(h.hold, t.hold.hold) {
			return t
		}
	}
	return nil
}

// beside calls f with each other hold that time does not place before h. It returns whether there may be others that
// were forgotten. worst is the largest clock error.
func (m *touchedMode) beside(h *accessor, worst int64, f func(t *effect)) (others bool) {
	first := h.earliest(h.issued)
	for i := len(m.latest) - 1; i >= 0; i-- {
		t := &m.latest[i]
		if t.hold.start+worst < first {
			break
		}
		if t.hold != h && !before(t.hold.hold, h.hold) {
			f(t)
		}
	}
	return m.droppedStart != 0 && m.droppedStart >= first && (!h.fresh || m.droppedOver > h.earliest(h.start))
}
