package story

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report/scene"
)

// topicMarker draws what the scenario names and no other mark shows.
type topicMarker marker

// marks adds the witnesses of such counts, each at its time: losses found at the end are at the final read. Counts
// without a witness, and measures, have no time.
func (mk topicMarker) marks() {
	mk.events()
	var rest []string
	for _, x := range scene.TopicsOf(mk.scene.Report) {
		switch {
		case !x.Count:
			rest = append(rest, x.String())
		case mk.told(x):
		case !mk.witnesses(x):
			rest = append(rest, x.String())
		}
	}
	mk.story.InAll = figure.List(rest)
	mk.worst()
}

// worst adds the witness that the picture is about, if no other mark shows it.
func (mk topicMarker) worst() {
	w := mk.scene.Worst
	if w == nil || scene.Drawing(*w) != results.DrawWhole {
		return
	}
	m := mk.note(*w, figure.Words(w.Kind))
	told := func(o Mark) bool { return o.Time == m.Time && strings.HasPrefix(o.Say, mk.says(*w)) }
	if !slices.ContainsFunc(mk.story.Marks, told) {
		mk.story.add(m)
	}
}

// events gives the marks of the events in `about` the weight of a topic. If nothing else was found, the first one is
// the headline.
func (mk topicMarker) events() {
	first := ""
	for i := range mk.story.Marks {
		if m := &mk.story.Marks[i]; m.Event != "" && m.Say != "" && slices.Contains(mk.scene.Report.About, m.Event) {
			m.Weight = max(m.Weight, weightTopic)
			first = cmp.Or(first, m.Say)
		}
	}
	if first != "" && mk.scene.Worst == nil {
		mk.story.Title = capital(first) + "; " + lower(mk.story.Title)
	}
}

// told reports whether a mark already names a count, and gives that mark the weight of a topic.
func (mk topicMarker) told(x scene.Topic) bool {
	i := slices.IndexFunc(mk.story.Marks, func(m Mark) bool {
		return scene.Mentions(m.Label+" "+m.Below, x.Name) &&
			scene.Mentions(m.Say, x.Name)
	})
	if i >= 0 {
		mk.story.Marks[i].Weight = max(mk.story.Marks[i].Weight, weightTopic)
	}
	return i >= 0
}

// witnesses adds the first witness of a count that involves a drawn user, else the first of all.
func (mk topicMarker) witnesses(x scene.Topic) (found bool) {
	best := x.Witness(mk.scene.Report, func(w results.Witness) bool { return mk.laneOf(w) >= 0 })
	if best == nil {
		return false
	}
	mk.story.add(mk.note(*best, x.String()))
	return true
}

// note returns the mark of a witness at its time. Losses found at the end are at the resource.
func (mk topicMarker) note(w results.Witness, label string) Mark {
	lane := mk.laneOf(w)
	if lane < 0 || slices.ContainsFunc(w.Events, func(e history.Event) bool { return e.Kind == history.Final }) {
		lane = mk.middle()
	}
	return Mark{
		Time: w.To, Kind: MarkNote, Lane: lane, To: nowhere, Weight: weightTopic,
		Label: label, Say: mk.says(w) + ": " + strings.ToUpper(label),
	}
}

// says returns the text of a witness in the form of sentences.
func (mk topicMarker) says(w results.Witness) string {
	return exactMS.ReplaceAllString(mk.scene.Named(w.Text), "$1 ms")
}

// laneOf returns the lane of a user in a witness; below 0 if none is drawn.
func (mk topicMarker) laneOf(w results.Witness) int {
	for i := len(w.Events) - 1; i >= 0; i-- {
		if l := mk.story.Lanes.client(w.Events[i].User); l >= 0 && w.Events[i].Kind != history.Final {
			return l
		}
	}
	return -1
}

// middle returns the lane of the resource, else the first.
func (mk topicMarker) middle() int { return max(mk.story.Lanes.kind(LaneResource), 0) }
