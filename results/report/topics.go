package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

// A topic is a figure above zero that the scenario names, under `about` or in its expectations: what the story is
// about.
type topic struct {
	name  string
	value float64
	count bool // it is a count; else a measure
}

// topics lists them, counts first: those that the scenario says it is about, then the others in the order of the
// expectations.
func (sc *scene) topics() []topic {
	names := slices.Clone(sc.report.About)
	for _, e := range sc.report.Expectations {
		if !e.Default && e.Name != scenarios.Judged && e.Name != scenarios.Bit && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	var counts, measures []topic
	for _, name := range names {
		if n := sc.report.Counts[name]; n != nil && *n > 0 {
			counts = append(counts, topic{name, float64(*n), true})
		} else if v := sc.report.Measures[name]; v != nil && *v > 0 {
			measures = append(measures, topic{name, *v, false})
		}
	}
	return append(counts, measures...)
}

// String writes "2 lost updates", "1 token regression" or "work done 12".
func (s topic) String() string {
	if !s.count {
		if name, ms := strings.CutSuffix(s.name, "_ms"); ms {
			return words(name) + " " + figure.Duration(int64(s.value*1e6))
		}
		return words(s.name) + " " + figure.Number(s.value)
	}
	parts := strings.Split(s.name, "_")
	for i := range parts { // the last word first, then from the first on
		i = (i + len(parts) - 1) % len(parts)
		if one, many := strings.CutSuffix(parts[i], "s"); many {
			if s.value == 1 {
				parts[i] = one
			}
			return figure.Count(int64(s.value)) + " " + strings.Join(parts, " ")
		}
	}
	return strings.Join(parts, " ") + " " + figure.Count(int64(s.value))
}

// names reports whether a kind of witness is named after the count: lost_write after acknowledged_writes_lost.
func (s topic) names(kind string) bool {
	for word := range strings.SplitSeq(kind, "_") {
		if !slices.ContainsFunc(strings.Split(s.name, "_"),
			func(w string) bool { return strings.HasPrefix(w, strings.TrimSuffix(word, "s")) }) {
			return false
		}
	}
	return true
}

// headed lays what the scenario names over a headline, where that does not say it: counts, and measures that it is
// about.
func (sc *scene) headed(title string) string {
	var more []string
	for _, x := range sc.topics() {
		if (x.count || slices.Contains(sc.report.About, x.name)) && !Names(title, x.name) {
			more = append(more, x.String())
		}
	}
	switch {
	case len(more) == 0:
		return title
	case title == sc.env.Scenario: // which says nothing
		return capital(figure.List(more))
	case sc.worst == nil:
		return capital(figure.List(more)) + "; " + lower(title)
	}
	return title + "; " + figure.List(more)
}

// Names reports whether a text names a count, such as stale_writes by "STALE WRITE" or "2 stale writes".
func Names(text, count string) bool {
	text = strings.ToLower(text)
	one := topic{count, 1, true}.String()
	return strings.Contains(text, strings.TrimPrefix(one, "1 ")) || strings.Contains(text, words(count))
}

// topicMarker draws what the scenario names and no other mark tells.
type topicMarker struct{ *story }

// marks adds the witnesses of such counts, each at its time: what is missing in the end stands at the final read.
// Counts without a witness, and measures, have no time.
func (s topicMarker) marks() {
	s.events()
	var rest []string
	for _, x := range s.scene.topics() {
		switch {
		case !x.count:
			rest = append(rest, x.String())
		case s.told(x):
		case !s.witnesses(x):
			rest = append(rest, x.String())
		}
	}
	s.InAll = figure.List(rest)
	s.worst()
}

// worst adds the witness that the picture is about, where no other mark is made of it.
func (s topicMarker) worst() {
	w := s.scene.worst
	if w == nil || drawing(*w) != results.DrawWhole {
		return
	}
	m := s.note(*w, words(w.Kind))
	told := func(o mark) bool { return o.Time == m.Time && strings.HasPrefix(o.Say, s.says(*w)) }
	if !slices.ContainsFunc(s.Marks, told) {
		s.add(m)
	}
}

// events gives the marks of the events that the scenario is about the weight of a topic. Where nothing else was found,
// the first one is the headline.
func (s topicMarker) events() {
	first := ""
	for i := range s.Marks {
		if m := &s.Marks[i]; m.Event != "" && m.Say != "" && slices.Contains(s.scene.report.About, m.Event) {
			m.Weight = max(m.Weight, weightTopic)
			first = cmp.Or(first, m.Say)
		}
	}
	if first != "" && s.scene.worst == nil {
		s.Title = capital(first) + "; " + lower(s.Title)
	}
}

// told reports whether a mark names a count already, and gives that mark the weight of a topic.
func (s topicMarker) told(x topic) bool {
	i := slices.IndexFunc(s.Marks, func(m mark) bool {
		return Names(m.Label+" "+m.Below, x.name) &&
			Names(m.Say, x.name)
	})
	if i >= 0 {
		s.Marks[i].Weight = max(s.Marks[i].Weight, weightTopic)
	}
	return i >= 0
}

// witnesses adds the first witness of a count that one of the drawn users takes part in, else the first of all.
func (s topicMarker) witnesses(x topic) (found bool) {
	best := s.scene.witness(x, func(w results.Witness) bool { return s.laneOf(w) >= 0 })
	if best == nil {
		return false
	}
	s.add(s.note(*best, x.String()))
	return true
}

// note is the mark of a witness at its time. What is missing in the end stands at the resource.
func (s topicMarker) note(w results.Witness, label string) mark {
	lane := s.laneOf(w)
	if lane < 0 || slices.ContainsFunc(w.Events, func(e history.Event) bool { return e.Kind == history.Final }) {
		lane = s.middle()
	}
	return mark{
		Time: w.To, Kind: markNote, Lane: lane, To: nowhere, Weight: weightTopic,
		Label: label, Say: s.says(w) + ": " + strings.ToUpper(label),
	}
}

// says is the text of a witness, as sentences have it.
func (s topicMarker) says(w results.Witness) string {
	return exactMS.ReplaceAllString(s.scene.named(w.Text), "$1 ms")
}

// witness is the first one of a count that is preferred, else the first of all; nil where there is none.
func (sc *scene) witness(x topic, preferred func(results.Witness) bool) *results.Witness {
	var best *results.Witness
	for _, f := range sc.report.Findings {
		if f.Counts[x.name] == nil {
			continue
		}
		for i := range f.Witnesses {
			w := &f.Witnesses[i]
			if mine := len(f.Counts) == 1 || x.names(w.Kind); mine &&
				(best == nil || !preferred(*best) && preferred(*w)) {
				best = w
			}
		}
	}
	return best
}

// laneOf is the lane of a user in a witness; below 0 where none is drawn.
func (s topicMarker) laneOf(w results.Witness) int {
	for i := len(w.Events) - 1; i >= 0; i-- {
		if l := s.client(w.Events[i].User); l >= 0 && w.Events[i].Kind != history.Final {
			return l
		}
	}
	return -1
}

// middle is the lane of the resource, else the first.
func (s topicMarker) middle() int { return max(s.lane(laneResource), 0) }
