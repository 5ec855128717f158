package story

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/scene"
)

// notable is the minimum time (ns), from when an access left its client, for it to be drawn as a slope.
const notable = 100_000_000

// maxAccesses bounds the ordinary accesses drawn for one hold.
const maxAccesses = 4

// accessMarker draws the resource's effects for the holders.
type accessMarker marker

// accessMarks adds the resource's effects for the holders, at their own times.
func (mk accessMarker) accessMarks() {
	resource := mk.story.Lanes.kind(LaneResource)
	if resource < 0 {
		return
	}
	for i := range mk.story.Holds {
		h := &mk.story.Holds[i]
		var plain, grave []Mark
		for _, e := range mk.scene.Events {
			if !scene.IsEffect(e) || e.User != h.Ref.User || e.Grant != h.Ref.Grant {
				continue
			}
			m := mk.access(e, h)
			m.To = resource
			if m.Kind == MarkStale || m.Kind == MarkRefused {
				grave = append(grave, m)
			} else {
				plain = append(plain, m)
			}
		}
		mk.story.Marks = append(mk.story.Marks, mk.keep(plain)...)
		mk.story.Marks = append(mk.story.Marks, mk.keep(grave)...)
	}
}

// keep keeps the first and the last marks if there are too many.
func (mk accessMarker) keep(ms []Mark) []Mark {
	if len(ms) <= maxAccesses {
		return ms
	}
	mk.story.Skipped += len(ms) - maxAccesses
	half := maxAccesses / 2
	return append(slices.Clone(ms[:half]), ms[len(ms)-half:]...)
}

// access returns the mark of one effect.
func (mk accessMarker) access(e history.Event, h *Bar) Mark {
	name, on := mk.story.Lanes[h.Lane].Name, mk.scene.Which("", e.Lock)
	m := Mark{
		Event: ended(e, &e), Time: e.Time, Lane: h.Lane, Kind: MarkWrite, Label: "write " + mk.value(e.Value) + on,
		Weight: weightAccess,
		Say:    fmt.Sprintf("%s writes %s%s, and it is applied", name, mk.value(e.Value), on),
	}
	kind, verb := history.Write, "write"
	if e.Kind == history.EffectRead {
		m.Kind, kind, verb, m.Label = MarkRead, history.Read, "read", "read "+mk.value(e.Value)+on
		m.Say, m.Weight = fmt.Sprintf("%s reads %s%s", name, mk.value(e.Value), on), weightTrifle
	}
	late := ""
	if sent := mk.sentAt(e, kind); sent != 0 && e.Time-sent > notable {
		m.Since = sent
		mk.story.add(Mark{
			Time: sent, Kind: MarkSent, Lane: h.Lane, To: nowhere, Label: "sends its " + verb, Weight: weightAccess,
			Say: fmt.Sprintf("%s sends its %s", name, verb),
		})
		late = ", sent at " + mk.story.moment(sent) + ","
	}
	switch {
	case e.Phase != history.Ok:
		m.Kind, m.Label, m.Weight = MarkRefused, verb+" refused", weightHarm
		m.Say = fmt.Sprintf("the %s of %s%s is refused", verb, name, late)
		if e.Token != 0 {
			m.Label = fmt.Sprintf("%s refused: token %d", verb, e.Token)
		}
		if r, ok := mk.scene.ReasonOf(e); ok {
			short, long := causeWords(r, e)
			m.Below = short
			m.Say += ": " + long
		} else {
			m.Below = scene.NoReason
			m.Say += ": " + scene.NoReason
		}
		for w := range scene.Witnesses(mk.scene.Report, results.DrawSaved, results.DrawRefused) {
			if slices.ContainsFunc(w.Events, func(o history.Event) bool {
				return o.Kind == e.Kind && o.Time == e.Time &&
					o.User == e.User
			}) {
				m.Below += "; " + figure.Words(w.Kind)
				m.Say += ": " + strings.ToUpper(figure.Words(w.Kind))
			}
		}
	case e.Kind == history.EffectWrite:
		after := ""
		if !mk.scene.Env.NoLock {
			after = mk.successor(e, h)
		}
		switch {
		case after != "" && e.Code == history.CodeConditional:
			m.Below = "late effect: after " + after + ", condition true"
			m.Say = fmt.Sprintf("the write %s of %s%s is applied after %s: its condition is checked in the same step, and true: late effect", mk.value(e.Value), name, late, after)
		case after != "":
			m.Kind, m.Label, m.Below, m.Weight = MarkStale, "stale "+m.Label, "after "+after, weightHarm
			m.Say = fmt.Sprintf("the write %s of %s%s is applied after %s: STALE WRITE", mk.value(e.Value), name, late,
				after)
		case late != "":
			m.Say = fmt.Sprintf("the write %s of %s%s is applied", mk.value(e.Value), name, late)
		}
	}
	return m
}

// value formats a value read or written. Elements of a set and bookings are named by their user and its count.
func (mk accessMarker) value(v int64) string {
	switch what := mk.scene.Env.Writes; {
	case v>>32 < 1:
		return strconv.FormatInt(v, 10)
	case what == "elements":
		return fmt.Sprintf("element %d of user %d", v&0xffffffff, v>>32)
	case what == "seats":
		return fmt.Sprintf("booking %d of user %d", v&0xffffffff, v>>32)
	}
	return strconv.FormatInt(v, 10)
}

// sentAt returns when the access with this effect left its client.
func (mk accessMarker) sentAt(effect history.Event, k history.Kind) int64 {
	var sent int64
	for _, e := range mk.scene.Events {
		if e.Kind == k && e.Phase == history.Invoke && e.User == effect.User && e.Grant == effect.Grant &&
			e.Time <= effect.Time {
			sent = max(sent, e.Time)
		}
	}
	return sent
}

// successor returns the access of a later holder that came before a write; "" if there was none: then the write is
// not stale. Later is decided by time first, and by a token of the service only if time leaves the order open.
func (mk accessMarker) successor(write history.Event, h *Bar) string {
	last, found := history.Event{}, false
	for _, e := range mk.scene.Events {
		if !scene.IsEffect(e) || e.Phase != history.Ok || e.Time >= write.Time || e.Lock != write.Lock {
			continue
		}
		for _, other := range mk.story.Holds {
			if other.Ref.User == e.User && other.Ref.Grant == e.Grant && mk.later(other.Ref, h.Ref) {
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
	return fmt.Sprintf("%s %s %s", mk.scene.Name(last.User), verb, mk.value(last.Value))
}

// later reports whether hold b certainly comes after hold a.
func (mk accessMarker) later(b, a results.HoldRef) bool {
	if b.User == a.User && b.Grant == a.Grant {
		return false
	}
	if a.Start < b.Issued {
		return true
	}
	return mk.scene.Env.Token == "service" && b.Start >= a.Issued && b.Token > a.Token && a.Token != 0
}
