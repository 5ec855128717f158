package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/results"
)

// maxLines is how many lines an explanation has at most, beside its first and its last.
const maxLines = 10

// Explain tells what happened in a run in about ten lines of plain words: what the picture shows, in the order of
// time. It uses only the run's own events, faults and observations. Where there is nothing to tell it says so.
func Explain(w io.Writer, dir string, r results.Report) error {
	env, err := results.ReadEnv(dir)
	if err != nil {
		return err
	}
	s, err := storyOf(dir, r, env)
	if err != nil {
		return err
	}
	if s == nil {
		_, err := fmt.Fprintln(w, "Nothing was found, and nothing was broken: there is no story to tell.")
		return err
	}
	_, err = io.WriteString(w, strings.Join(s.explain(), "\n")+"\n")
	return err
}

// explain is the story in lines: the heaviest sentences, in the order of time.
func (s *story) explain() []string {
	type line struct {
		mark
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
		out = append(out, fmt.Sprintf("  (%d lesser things are left out)", left))
	}
	if s.Others > 0 {
		out = append(out, fmt.Sprintf("  (%d more grants to other users lie between)", s.Others))
	}
	return out
}
