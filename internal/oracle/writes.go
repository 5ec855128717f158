package oracle

import (
	"slices"

	"github.com/lockquake/lockquake/history"
)

// write is what a user wrote, what it had read last before that, and the outcome: Info where nobody knows.
type write struct {
	value, onto int64
	phase       history.Phase
}

// writesOf are those of one lock. After a transfer its user knows what it wrote without reading it.
func (j *judge) writesOf(lock uint16) (ws []write) {
	for i, e := range j.events {
		if e.Lock != lock || e.Kind != history.Write || e.Phase != history.Invoke {
			continue
		}
		w := write{value: e.Value, phase: j.events[j.outcome(i)].Phase}
		for _, r := range j.events[:i] {
			if r.User == e.User && r.Lock == lock && r.Phase == history.Ok && (r.Kind == history.Read || r.Kind == history.Write && j.Writes == "transfers") {
				w.onto = r.Value
			}
		}
		ws = append(ws, w)
	}
	return ws
}

// writes counts what is missing in the end, if all final values were read of what acknowledged writes changed.
func (j *judge) writes() {
	locks, finals := map[uint16]bool{}, map[uint16]int64{}
	for _, e := range j.events {
		if locks[e.Lock] = true; e.Kind == history.Final {
			finals[e.Lock] = e.Value
		}
	}
	acked, whole, linked := false, true, true
	var off, doubt int64 // of all accounts: what cannot be explained, and what may be explained by writes of unknown outcome
	for lock := range locks {
		ws := j.writesOf(lock)
		last, read := finals[lock]
		elements, all := chain(ws, last)
		sold, more, unsure := int64(0), last, int64(0)
		for _, w := range ws {
			switch w.phase {
			case history.Ok:
				sold++
				more -= w.value - w.onto
				j.add("units_oversold", sold > j.Stock)
				j.add("lost_updates", sold > last)
				j.add("double_bookings", w.value != last)
				j.add("lost_elements", !slices.Contains(elements, w.value))
			case history.Info:
				unsure += max(w.value-w.onto, w.onto-w.value)
			}
		}
		acked, whole, linked = acked || sold > 0, whole && (read || sold == 0), linked && all
		if read {
			off, doubt = off+more, doubt+unsure
			j.add("accounts_off", max(more, -more) > unsure)
		}
	}
	j.counts["sum_off"] = max(0, max(off, -off)-doubt)
	acked = acked && j.Resource != ""
	j.judged(acked && j.Writes == "sales" && j.Stock > 0, "units_oversold")
	j.judged(acked && whole && j.Increments, "lost_updates")
	j.judged(acked && whole && j.Writes == "seats", "double_bookings")
	j.judged(acked && whole && j.Writes == "elements" && linked, "lost_elements")
	j.judged(acked && whole && j.Writes == "transfers", "accounts_off", "sum_off")
}

// chain is the last element, the one that it was added to, and so on: all where each of them was written.
func chain(ws []write, last int64) (elements []int64, all bool) {
	for last != 0 && !slices.Contains(elements, last) {
		elements = append(elements, last)
		i := slices.IndexFunc(ws, func(w write) bool { return w.value == last })
		if i < 0 {
			return elements, false
		}
		last = ws[i].onto
	}
	return elements, true
}
