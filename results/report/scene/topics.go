package scene

import (
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/scenarios"
)

// A Topic is a figure above zero that the scenario names, under `about` or in its expectations: the subject of the
// story.
type Topic struct {
	Name  string
	Value float64
	Count bool // it is a count; else a measure
}

// TopicsOf lists the topics, counts first: those in `about`, then the others in the order of the expectations.
func TopicsOf(r results.Report) []Topic {
	names := slices.Clone(r.About)
	for _, e := range r.Expectations {
		if !e.Default && e.Name != scenarios.Judged && e.Name != scenarios.Bit && !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	var counts, measures []Topic
	for _, name := range names {
		if n := r.Counts[name]; n != nil && *n > 0 {
			counts = append(counts, Topic{name, float64(*n), true})
		} else if v := r.Measures[name]; v != nil && *v > 0 {
			measures = append(measures, Topic{name, *v, false})
		}
	}
	return append(counts, measures...)
}

// String formats "2 lost updates", "1 token regression" or "work done 12".
func (s Topic) String() string {
	if !s.Count {
		if name, ms := strings.CutSuffix(s.Name, "_ms"); ms {
			return figure.Words(name) + " " + figure.Duration(int64(s.Value*1e6))
		}
		return figure.Words(s.Name) + " " + figure.Number(s.Value)
	}
	parts := strings.Split(s.Name, "_")
	for i := range parts { // the last word first, then from the first on
		i = (i + len(parts) - 1) % len(parts)
		if one, many := strings.CutSuffix(parts[i], "s"); many {
			if s.Value == 1 {
				parts[i] = one
			}
			return figure.Count(int64(s.Value)) + " " + strings.Join(parts, " ")
		}
	}
	return strings.Join(parts, " ") + " " + figure.Count(int64(s.Value))
}

// names reports whether a kind of witness is named after the count: lost_write after acknowledged_writes_lost.
func (s Topic) names(kind string) bool {
	for word := range strings.SplitSeq(kind, "_") {
		if !slices.ContainsFunc(strings.Split(s.Name, "_"),
			func(w string) bool { return strings.HasPrefix(w, strings.TrimSuffix(word, "s")) }) {
			return false
		}
	}
	return true
}

// Witness returns the first preferred witness of the count, else the first of all; nil without one.
func (s Topic) Witness(r results.Report, preferred func(results.Witness) bool) *results.Witness {
	var best *results.Witness
	for _, f := range r.Findings {
		if f.Counts[s.Name] == nil {
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

// Mentions reports whether a text names a count, such as stale_writes by "STALE WRITE" or "2 stale writes".
func Mentions(text, count string) bool {
	text = strings.ToLower(text)
	one := Topic{count, 1, true}.String()
	return strings.Contains(text, strings.TrimPrefix(one, "1 ")) || strings.Contains(text, figure.Words(count))
}
