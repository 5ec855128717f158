package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// notable is the time (ns) from which on an access is drawn as a slope from when it left its client.
const notable = 5_000_000

// maxAccesses bounds the ordinary accesses drawn for one hold.
const maxAccesses = 4

// lockMarks adds what the clients and the lock service said to each other.
func (s *story) lockMarks(events []history.Event) {
	service := s.lane(laneService)
	for i := range s.Holds {
		h := &s.Holds[i]
		h.Asked = h.Ref.Issued
		released := false
		for _, e := range events {
			if e.User != h.Ref.User {
				continue
			}
			mine := e.Grant == h.Ref.Grant
			switch {
			case e.Kind == history.Acquire && e.Phase == history.Invoke && e.Op == h.Ref.Grant:
				h.Asked = e.Time
			case e.Kind == history.Release && e.Phase == history.Invoke && mine:
				released = true
				s.add(mark{Time: e.Time, Kind: markRequest, Lane: h.Lane, To: service, Label: "release" + outcome(events, e)})
			case e.Kind == history.Renewed && mine, e.Kind == history.Renew && e.Phase == history.Ok && mine:
				h.Renewals = append(h.Renewals, e.Time)
			case e.Kind == history.Ended && mine:
				s.add(mark{Time: e.Time, Kind: markNote, Lane: service, To: -1, Label: "session last seen standing"})
			case e.Kind == history.Lost && mine:
				s.add(mark{Time: e.Time, Kind: markNote, Lane: h.Lane, To: -1, Label: "told: grant lost"})
			case e.Kind == history.Dead && e.Time >= h.Ref.Start:
				s.add(mark{Time: e.Time, Kind: markNote, Lane: h.Lane, To: -1, Label: "process is dead"})
			}
		}
		s.add(mark{Time: h.Asked, Kind: markRequest, Lane: h.Lane, To: service, Label: "acquire"})
		label := "granted"
		if h.Ref.Token != 0 {
			label = fmt.Sprintf("granted, token %d", h.Ref.Token)
		}
		s.add(mark{Time: h.Ref.Start, Kind: markReply, Lane: h.Lane, To: service, Label: label})
		if h.Ref.End != 0 && !released && !s.hasMark(h.Lane, h.Ref.End) {
			s.add(mark{Time: h.Ref.End, Kind: markNote, Lane: h.Lane, To: -1, Label: "hold ends"})
		}
	}
}

func (s *story) hasMark(lane int, t int64) bool {
	return slices.ContainsFunc(s.Marks, func(m mark) bool { return m.Lane == lane && m.Time == t })
}

// outcome says in words how the operation that began with e ended, where that is worth a word.
func outcome(events []history.Event, e history.Event) string {
	for _, f := range events {
		if f.User != e.User || f.Op != e.Op || f.Kind != e.Kind || f.Phase == history.Invoke {
			continue
		}
		switch f.Phase {
		case history.Ok:
			return ""
		case history.Fail:
			return ": " + strings.ReplaceAll(history.CodeName(f.Code), "-", " ")
		default:
			return ": outcome unknown"
		}
	}
	return ": no answer"
}

// accessMarks adds what the resource did for the holders, at the times of the effects.
func (s *story) accessMarks(events []history.Event) {
	resource := s.lane(laneResource)
	if resource < 0 {
		return
	}
	for i := range s.Holds {
		h := &s.Holds[i]
		var plain, grave []mark
		for _, e := range events {
			if !isEffect(e) || e.User != h.Ref.User || e.Grant != h.Ref.Grant {
				continue
			}
			m := s.access(events, e, h)
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
func (s *story) access(events []history.Event, e history.Event, h *bar) mark {
	m := mark{Time: e.Time, Lane: h.Lane, Kind: markWrite, Label: fmt.Sprintf("write %d", e.Value)}
	kind := history.Write
	if e.Kind == history.EffectRead {
		m.Kind, kind, m.Label = markRead, history.Read, fmt.Sprintf("read %d", e.Value)
	}
	if sent := sentAt(events, e, kind); sent != 0 && e.Time-sent > notable {
		m.Since = sent
		verb, _, _ := strings.Cut(m.Label, " ")
		s.add(mark{Time: sent, Kind: markSent, Lane: h.Lane, To: -1, Label: "sends its " + verb})
	}
	if e.Phase != history.Ok {
		verb, _, _ := strings.Cut(m.Label, " ")
		m.Kind, m.Label = markRefused, verb+" refused"
		if e.Token != 0 {
			m.Label = fmt.Sprintf("%s refused: token %d", verb, e.Token)
		}
		if seen := highestToken(events, e); seen > e.Token {
			m.Below = fmt.Sprintf("%d was seen before", seen)
		}
		return m
	}
	if e.Kind == history.EffectWrite {
		if after := s.successor(events, e, h); after != "" {
			m.Kind, m.Label, m.Below = markStale, "stale "+m.Label, "after "+after
		}
	}
	return m
}

// sentAt finds when the access that had this effect left its client.
func sentAt(events []history.Event, effect history.Event, k history.Kind) int64 {
	var sent int64
	for _, e := range events {
		if e.Kind == k && e.Phase == history.Invoke && e.User == effect.User && e.Grant == effect.Grant && e.Time <= effect.Time {
			sent = max(sent, e.Time)
		}
	}
	return sent
}

// highestToken is the highest token that the resource let pass before the effect.
func highestToken(events []history.Event, effect history.Event) uint64 {
	var seen uint64
	for _, e := range events {
		if isEffect(e) && e.Phase == history.Ok && e.Lock == effect.Lock && e.Time <= effect.Time {
			seen = max(seen, e.Token)
		}
	}
	return seen
}

// successor tells which access of a later holder came before a write, or "" where none did: then the write is not
// stale. Later goes by time first, and by a token of the service only where time leaves the order open.
func (s *story) successor(events []history.Event, write history.Event, h *bar) string {
	last, found := history.Event{}, false
	for _, e := range events {
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
	return fmt.Sprintf("client-%d %s %d", last.User.Client()+1, verb, last.Value)
}

// later tells whether hold b certainly comes after hold a.
func (s *story) later(b, a results.HoldRef) bool {
	if b.User == a.User && b.Grant == a.Grant {
		return false
	}
	if a.Start < b.Issued {
		return true
	}
	return s.Ordered && b.Start >= a.Issued && b.Token > a.Token && a.Token != 0
}
