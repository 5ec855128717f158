package suite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// property is what the runs of a lock show of it.
type property struct{ lock, name, answer string }

// properties lists what the runs of each cell show of its lock.
func (r Result) properties() (out []property) {
	for _, c := range r.Cells {
		answers := map[string]map[string]int{} // runs, by name and answer
		for _, run := range c.Runs {
			for _, p := range run.Properties {
				if answers[p.Name] == nil {
					answers[p.Name] = map[string]int{}
				}
				answers[p.Name][p.Answer]++
			}
		}
		for _, name := range slices.Sorted(maps.Keys(answers)) {
			var parts []string
			for _, answer := range slices.Sorted(maps.Keys(answers[name])) {
				if n := answers[name][answer]; n < len(c.Runs) {
					answer = fmt.Sprintf("%s %d of %d", answer, n, len(c.Runs))
				}
				parts = append(parts, answer)
			}
			out = append(out, property{c.Lock, name, strings.Join(parts, ", ")})
		}
	}
	return out
}
