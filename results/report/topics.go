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

// topicsOf lists them, counts first: those that the scenario says it is about, then the others in the order of the
// expectations.
func topicsOf(r results.Report) []topic {
	names := slices.Clone(r.About)
	for _, e := range r.Expectations {
		if !e.Default && e.Name != scenarios.Judged && e.Name != scenarios.Bit && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	var counts, measures []topic
	for _, name := range names {
		if n := r.Counts[name]; n != nil && *n > 0 {
			counts = append(counts, topic{name, float64(*n), true})
		} else if v := r.Measures[name]; v != nil && *v > 0 {
			measures = append(measures, topic{name, *v, false})
		}
	}
	return append(counts, measures...)
}

// String writes "2 lost updates", "1 token regression" or "work done 12".
func (s topic) String() string {
	if !s.count {
		if name, ms := strings.CutSuffix(s.name, "_ms"); ms {
			return figure.Words(name) + " " + figure.Duration(int64(s.value*1e6))
		}
		return figure.Words(s.name) + " " + figure.Number(s.value)
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

// witness is the first one of the count that is preferred, else the first of all; nil where there is none.
func (s topic) witness(r results.Report, preferred func(results.Witness) bool) *results.Witness {
	var best *results.Witness
	for _, f := range r.Findings {
		if f.Counts[s.name] == nil {
			continue
		}
		for i := range f.Witnesses {
			w := &f.Witnesses[i]
			if mine := len(f.Counts) == 1 || s.names(w.Kind); mine &&
				(best == nil || !preferred(*best) && preferred(*w)) {
				best = w
			}
		}
	}
	return best
}

// headed lays what the scenario names over a headline, where that does not say it: counts, and measures that it is
// about.
func headed(sc *scene, title string) string {
	var more []string
	for _, x := range topicsOf(sc.report) {
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
	return strings.Contains(text, strings.TrimPrefix(one, "1 ")) || strings.Contains(text, figure.Words(count))
}

// topicMarker draws what the scenario names and no other mark tells.
type topicMarker marker

// marks adds the witnesses of such counts, each at its time: what is missing in the end stands at the final read.
// Counts without a witness, and measures, have no time.
func (mk topicMarker) marks() {
	mk.events()
	var rest []string
	for _, x := range topicsOf(mk.scene.report) {
		switch {
		case !x.count:
			rest = append(rest, x.String())
		case mk.told(x):
		case !mk.witnesses(x):
			rest = append(rest, x.String())
		}
	}
	mk.story.InAll = figure.List(rest)
	mk.worst()
}

// worst adds the witness that the picture is about, where no other mark is made of it.
func (mk topicMarker) worst() {
	w := mk.scene.worst
	if w == nil || drawing(*w) != results.DrawWhole {
		return
	}
	m := mk.note(*w, figure.Words(w.Kind))
	told := func(o mark) bool { return o.Time == m.Time && strings.HasPrefix(o.Say, mk.says(*w)) }
	if !slices.ContainsFunc(mk.story.Marks, told) {
		mk.story.add(m)
	}
}

// events gives the marks of the events that the scenario is about the weight of a topic. Where nothing else was found,
// the first one is the headline.
func (mk topicMarker) events() {
	first := ""
	for i := range mk.story.Marks {
		if m := &mk.story.Marks[i]; m.Event != "" && m.Say != "" && slices.Contains(mk.scene.report.About, m.Event) {
			m.Weight = max(m.Weight, weightTopic)
			first = cmp.Or(first, m.Say)
		}
	}
	if first != "" && mk.scene.worst == nil {
		mk.story.Title = capital(first) + "; " + lower(mk.story.Title)
	}
}

// told reports whether a mark names a count already, and gives that mark the weight of a topic.
func (mk topicMarker) told(x topic) bool {
	i := slices.IndexFunc(mk.story.Marks, func(m mark) bool {
		return Names(m.Label+" "+m.Below, x.name) &&
			Names(m.Say, x.name)
	})
	if i >= 0 {
		mk.story.Marks[i].Weight = max(mk.story.Marks[i].Weight, weightTopic)
	}
	return i >= 0
}

// witnesses adds the first witness of a count that one of the drawn users takes part in, else the first of all.
func (mk topicMarker) witnesses(x topic) (found bool) {
	best := x.witness(mk.scene.report, func(w results.Witness) bool { return mk.laneOf(w) >= 0 })
	if best == nil {
		return false
	}
	mk.story.add(mk.note(*best, x.String()))
	return true
}

// note is the mark of a witness at its time. What is missing in the end stands at the resource.
func (mk topicMarker) note(w results.Witness, label string) mark {
	lane := mk.laneOf(w)
	if lane < 0 || slices.ContainsFunc(w.Events, func(e history.Event) bool { return e.Kind == history.Final }) {
		lane = mk.middle()
	}
	return mark{
		Time: w.To, Kind: markNote, Lane: lane, To: nowhere, Weight: weightTopic,
		Label: label, Say: mk.says(w) + ": " + strings.ToUpper(label),
	}
}

// says is the text of a witness, as sentences have it.
func (mk topicMarker) says(w results.Witness) string {
	return exactMS.ReplaceAllString(mk.scene.named(w.Text), "$1 ms")
}

// laneOf is the lane of a user in a witness; below 0 where none is drawn.
func (mk topicMarker) laneOf(w results.Witness) int {
	for i := len(w.Events) - 1; i >= 0; i-- {
		if l := mk.story.Lanes.client(w.Events[i].User); l >= 0 && w.Events[i].Kind != history.Final {
			return l
		}
	}
	return -1
}

// middle is the lane of the resource, else the first.
func (mk topicMarker) middle() int { return max(mk.story.Lanes.kind(laneResource), 0) }
