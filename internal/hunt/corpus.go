package hunt

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lockquake/lockquake/internal/hunt/behaviour"
	"github.com/lockquake/lockquake/internal/hunt/script"
)

// corpus is what a search has learned: the behaviours seen, how often, and the scripts whose runs showed something
// new. It is computed from notes alone, so that a resumed hunt has the same corpus.
type corpus struct {
	numbers map[string]int // of behaviours, in the order in which they were first seen
	runs    []int          // by number: how many runs showed it
	kinds   []string       // by number: its family
	entries []entry
	curve   []Point
}

// entry is a script whose run showed something new.
type entry struct {
	script script.Script
	shows  []int
	near   map[string]float64
	picked int // how often it was mutated
	run    int // from 1
}

// Point is how many behaviours were known after a run.
type Point struct {
	Run        int   `json:"run"`
	At         int64 `json:"at_ms"` // the time of all runs up to this one
	Behaviours int   `json:"behaviours"`
}

// known splits the behaviours of a run: it returns the new ones, and the numbers of the others.
func (c *corpus) known(seen behaviour.Seen) (fresh []string, others []int) {
	for _, b := range seen.Behaviours {
		if n, ok := c.numbers[b]; ok {
			others = append(others, n)
		} else {
			fresh = append(fresh, b)
		}
	}
	return fresh, others
}

// learn takes in the note of the next run, made at the given ms of the search.
func (c *corpus) learn(n Note, run int, at int64) {
	if c.numbers == nil {
		c.numbers = map[string]int{}
	}
	if n.From > 0 && n.From <= len(c.entries) {
		c.entries[n.From-1].picked++
	}
	shows := slices.Clone(n.Had)
	for _, b := range n.New {
		c.numbers[b] = len(c.runs)
		shows = append(shows, len(c.runs))
		c.runs = append(c.runs, 0)
		c.kinds = append(c.kinds, behaviour.Family(b))
	}
	for _, i := range shows {
		if i < len(c.runs) {
			c.runs[i]++
		}
	}
	if len(n.New) > 0 {
		c.entries = append(c.entries, entry{script: n.Script, shows: shows, near: n.Near, run: run})
		c.curve = append(c.curve, Point{run, at, len(c.runs)})
	}
}

// energy returns how promising a script is. It is the root of the sum of the rarities of its behaviours, of each family
// the rarest one: a fault that was not used before makes dozens of the same family. It grows the nearer the script's
// run came to a goal, and shrinks each time it is tried.
//
// Example: a script shows a family of behaviours that no other run did, and nine that every one of 100 runs did: its
// rarity is 1 + 9/100, of which the root is 1.04. Its run came as near as 0.8 to a double grant, the first goal, which
// makes it 1 + 8*0.8*0.8 = 6.1 times as promising. Once tried, it is half as promising as before.
func (c *corpus) energy(e entry, wanted []Goal) float64 {
	fewest := map[string]int{} // runs, by family
	for _, i := range e.shows {
		if n, ok := fewest[c.kinds[i]]; !ok || c.runs[i] < n {
			fewest[c.kinds[i]] = c.runs[i]
		}
	}
	rarity := 0.0
	for _, kind := range slices.Sorted(maps.Keys(fewest)) { // in an order, so that the sum is the same each time
		rarity += 1 / float64(fewest[kind])
	}
	near := e.nearness(wanted)
	return (0.1 + math.Sqrt(rarity)) * (1 + 8*near*near) / float64(1+e.picked)
}

// nearness returns how near a script's run came to a goal, of which the first counts most.
func (e entry) nearness(wanted []Goal) (near float64) {
	worth := 1.0
	for _, g := range wanted {
		near = max(near, worth*e.near[g.Name])
		worth *= 0.7
	}
	return near
}

// drawn returns the share of tries that are drawn without regard to the corpus. At first it is all of them, since
// relatives of a few scripts teach little. It falls with the number of scripts, and with the nearest one to a fifth: no
// corpus is to be a dead end.
func (c *corpus) drawn(wanted []Goal) float64 {
	near := 0.0
	for _, e := range c.entries {
		near = max(near, e.nearness(wanted))
	}
	return max(0.2, (1-near)/(1+float64(len(c.entries))/many))
}

// many is the number of scripts at which a half of the tries is drawn, if none came near.
const many = 20

// pick draws an entry, weighted by energy; its number counts from 1. There must be one.
func (c *corpus) pick(r *rand.Rand, wanted []Goal) (e entry, number int) {
	sums := make([]float64, len(c.entries))
	sum := 0.0
	for i, e := range c.entries {
		sum += c.energy(e, wanted)
		sums[i] = sum
	}
	i, _ := slices.BinarySearch(sums, r.Float64()*sum)
	i = min(i, len(sums)-1)
	return c.entries[i], i + 1
}

// nearest returns the script whose run came nearest to a goal: the first goal that any run approached.
func (c *corpus) nearest(wanted []Goal) (e entry, goal string, near float64) {
	for _, g := range wanted {
		for _, x := range c.entries {
			if x.near[g.Name] > near {
				e, goal, near = x, g.Name, x.near[g.Name]
			}
		}
		if near > 0 {
			return e, goal, near
		}
	}
	return e, "", 0
}
