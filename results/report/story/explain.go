package story

import (
	"cmp"
	"fmt"
	"slices"
)

// maxLines is the maximum of lines of an explanation, without its first and its last.
const maxLines = 10

// Explain returns the story in lines: the heaviest sentences, in the order of time.
func (s *Story) Explain() []string {
	type line struct {
		Mark
		place int
	}
	var all []line
	for i, m := range s.Marks {
		if m.Say != "" {
			all = append(all, line{m, i})
		}
	}
	said := len(all)
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(b.Weight, a.Weight) })
	all = all[:min(len(all), maxLines)]
	slices.SortFunc(all, func(a, b line) int { return cmp.Compare(a.place, b.place) })
	out := []string{s.Title + "."}
	for _, l := range all {
		out = append(out, fmt.Sprintf("  t+%.3f s  %s", float64(l.Time-s.Start)/1e9, l.Say))
	}
	if s.InAll != "" {
		out = append(out, "  in all: "+s.InAll)
	}
	if left := said - len(all); left > 0 {
		out = append(out, fmt.Sprintf("  (%d minor events are omitted)", left))
	}
	if s.Others > 0 {
		out = append(out, fmt.Sprintf("  (%d more grants to other users lie in between)", s.Others))
	}
	return out
}
