package report

import (
	"fmt"
	"slices"

	"github.com/lockquake/lockquake/history"
)

// notable is the time (ns) from which on an access is drawn as a slope from when it left its client.
const notable = 100_000_000

// maxAccesses bounds the ordinary accesses drawn for one hold.
const maxAccesses = 4

// accessMarks adds what the resource did for the holders, at the times of the effects.
func (s *story) accessMarks() {
	resource := s.lane(laneResource)
	if resource < 0 {
		return
	}
	for i := range s.Holds {
		h := &s.Holds[i]
		var plain, grave []mark
		for _, e := range s.scene.events {
			if !isEffect(e) || e.User != h.Ref.User || e.Grant != h.Ref.Grant {
				continue
			}
			m := s.access(e, h)
			m.To = resource
			if m.Kind == markStale || m.Kind == markRefused {
				grave = append(grave, m)
			} else {
				plain = append(plain, m)
			}
		}
		s.Marks = append(s.Marks, s.keep(plain)...)
		s.Marks = append(s.Marks, s.keep(grave)...)
	}
}

// keep takes the first and the last of too many.
func (s *story) keep(ms []mark) []mark {
	if len(ms) <= maxAccesses {
		return ms
	}
	s.Skipped += len(ms) - maxAccesses
	half := maxAccesses / 2
	return append(slices.Clone(ms[:half]), ms[len(ms)-half:]...)
}

// access makes the mark of one effect.
func (s *story) access(e history.Event, h *bar) mark {
	name, on := s.Lanes[h.Lane].Name, s.which("", e.Lock)
	m := mark{
		Time: e.Time, Lane: h.Lane, Kind: markWrite, Label: fmt.Sprintf("write %d%s", e.Value, on), Weight: weightAccess,
		Say: fmt.Sprintf("%s writes %d%s, and it is applied", name, e.Value, on),
	}
	kind, verb := history.Write, "write"
	if e.Kind == history.EffectRead {
		m.Kind, kind, verb, m.Label = markRead, history.Read, "read", fmt.Sprintf("read %d%s", e.Value, on)
		m.Say, m.Weight = fmt.Sprintf("%s reads %d%s", name, e.Value, on), weightTrifle
	}
	late := ""
	if sent := s.sentAt(e, kind); sent != 0 && e.Time-sent > notable {
		m.Since = sent
		s.add(mark{
			Time: sent, Kind: markSent, Lane: h.Lane, To: nowhere, Label: "sends its " + verb, Weight: weightAccess,
			Say: fmt.Sprintf("%s sends its %s", name, verb),
		})
		late = ", sent at " + s.at(sent) + ","
	}
	switch {
	case e.Phase != history.Ok:
		m.Kind, m.Label, m.Weight = markRefused, verb+" refused", weightCrux
		m.Say = fmt.Sprintf("the %s of %s%s is refused", verb, name, late)
		if e.Token != 0 {
			m.Label = fmt.Sprintf("%s refused: token %d", verb, e.Token)
		}
		if seen := s.highestToken(e); seen > e.Token && e.Token != 0 {
			m.Below = fmt.Sprintf("%d was seen before", seen)
			m.Say += fmt.Sprintf(": its token is %d, and %d was seen before", e.Token, seen)
		}
	case e.Kind == history.EffectWrite:
		if after := s.successor(e, h); after != "" {
			m.Kind, m.Label, m.Below, m.Weight = markStale, "stale "+m.Label, "after "+after, weightCrux
			m.Say = fmt.Sprintf("the write %d of %s%s is applied after %s: STALE WRITE", e.Value, name, late, after)
		} else if late != "" {
			m.Say = fmt.Sprintf("the write %d of %s%s is applied", e.Value, name, late)
		}
	}
	return m
}

// sentAt finds when the access that had this effect left its client.
func (s *story) sentAt(effect history.Event, k history.Kind) int64 {
	var sent int64
	for _, e := range s.scene.events {
		if e.Kind == k && e.Phase == history.Invoke && e.User == effect.User && e.Grant == effect.Grant && e.Time <= effect.Time {
			sent = max(sent, e.Time)
		}
	}
	return sent
}

// highestToken is the highest token that the resource let pass before the effect.
func (s *story) highestToken(effect history.Event) uint64 {
	var seen uint64
	for _, e := range s.scene.events {
		if isEffect(e) && e.Phase == history.Ok && e.Lock == effect.Lock && e.Time <= effect.Time {
			seen = max(seen, e.Token)
		}
	}
	return seen
}

// successor tells which access of a later holder came before a write, or "" where none did: then the write is not
// stale. Later goes by time first, and by a token of the service only where time leaves the order open.
func (s *story) successor(write history.Event, h *bar) string {
	last, found := history.Event{}, false
	for _, e := range s.scene.events {
		if !isEffect(e) || e.Phase != history.Ok || e.Time >= write.Time || e.Lock != write.Lock {
			continue
		}
		for _, other := range s.Holds {
			if other.Ref.User == e.User && other.Ref.Grant == e.Grant && s.later(other.Ref, h.Ref) {
				last, found = e, true
			}
		}
	}
	if !found {
		return ""
	}
	verb := "wrote"
	if last.Kind == history.EffectRead {
		verb = "read"
	}
	return fmt.Sprintf("%s %s %d", s.scene.name(last.User), verb, last.Value)
}
