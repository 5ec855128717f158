// Growth: client processes that use more of the machine after each third of a run.
//
// The engine observes each client's processes from outside when the load begins and after each third of it: the open
// descriptors, the threads, and the memory that no file backs. A client leaks descriptors, or threads, if they grow
// in each of the three thirds by at least 8. A pool fills in the first third, and a runtime that starts a thread now
// and then does not start 8 in each.
//
// Example: a library opens a file for every fourth grant and forgets it. After 0, 300, 600 and 900 grants the client
// has 12, 87, 162 and 237 open: one leak, of 250 descriptors per 1,000 grants.
//
// It cannot see:
//   - a leak of less than 8 in a third, nor one that begins late
//   - a leak of memory: that is reported, not judged, because the heap of a garbage-collected runtime grows by itself
//   - anything in a run with faults, after which connections and their waiters may be more, or with thirds of less than
//     a second, or of clients that are on another machine or share the engine's process

package costs

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

const (
	// leaksFrom is the minimum growth of a leaking client in each third.
	leaksFrom = 8
	// shortestThird is the minimum length of a third.
	shortestThird = int64(time.Second)
	// footprints is the number of observations of a client.
	footprints = 4
)

type growth struct {
	run    results.Run
	grants int64
	judged int64         // grants between the first and the last observation
	last   history.Event // the last grant
}

// Growth is the checker.
var Growth = results.CheckerKind{
	Name: "growth", New: newGrowth, Grants: true,
	Doc: "The descriptors and threads of a client do not grow in each third of a run. Judged without faults, where its processes are visible.",
	Counts: []results.Quantity{
		{
			Name: "client_leaks", Doc: "client processes whose descriptors or threads grew in each third of a run without faults ([growth](#growth))",
			Tone: results.Violation, Of: "grants between two samples of the clients", Timeless: true,
		},
	},
	Measures: []results.Quantity{
		{Name: "client_descriptors_per_1000_grants", Doc: "growth in open descriptors of the clients after the first third ([growth](#growth))"},
		{Name: "client_threads_per_1000_grants", Doc: "growth in threads of the clients after the first third"},
		{Name: "client_memory_kib_per_1000_grants", Doc: "growth in anonymous memory of the clients after the first third"},
	},
	Witnesses: results.Aside("leak"),
}

func newGrowth(run results.Run) results.Checker { return &growth{run: run} }

// Observe counts the grants between the observations.
func (c *growth) Observe(e *history.Event) {
	if e.Kind != history.Acquire || e.Phase != history.Ok || len(c.run.Footprints) != footprints {
		return
	}
	c.last = *e
	switch {
	case e.Time > c.run.Footprints[footprints-1].Time:
	case e.Time > c.run.Footprints[1].Time:
		c.grants++
		c.judged++
	case e.Time > c.run.Footprints[0].Time:
		c.judged++
	}
}

// resources lists the counted resources of a client, and which of them are judged.
var resources = []struct {
	name, measure string
	judged        bool
	of            func(results.Footprint) int64
}{
	{"descriptors", "client_descriptors_per_1000_grants", true, func(f results.Footprint) int64 { return f.Descriptors }},
	{"threads", "client_threads_per_1000_grants", true, func(f results.Footprint) int64 { return f.Threads }},
	{"KiB of memory", "client_memory_kib_per_1000_grants", false, func(f results.Footprint) int64 { return f.Memory >> 10 }},
}

// Finish returns the finding.
func (c *growth) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Measures: map[string]*float64{}}
	for _, r := range resources {
		f.Measures[r.measure] = nil
	}
	looks := c.run.Footprints
	switch {
	case len(looks) != footprints:
		return f.NotApplicable("the clients' processes were not sampled after each third")
	case len(c.run.Faults) > 0:
		return f.NotApplicable("faults may leave a client with more connections")
	case (looks[footprints-1].Time-looks[0].Time)/(footprints-1) < shortestThird:
		return f.NotApplicable("a third of the load lasted less than a second")
	}
	var leaks int64
	grown := make([]int64, len(resources))
	for name := range looks[0].Of {
		leaky := false
		for i, r := range resources {
			var seen []int64
			for _, at := range looks {
				seen = append(seen, r.of(at.Of[name]))
			}
			grown[i] += seen[footprints-1] - seen[1]
			if r.judged && steady(seen) {
				leaky = true
				f.Prove(results.Witness{
					Kind: "leak", Lock: c.run.LockName(c.last.Lock), From: looks[0].Time, To: looks[footprints-1].Time,
					Events: []history.Event{c.last},
					Text: fmt.Sprintf("%s has more %s after each third of the load: %d, %d, %d, %d", name, r.name,
						seen[0], seen[1], seen[2], seen[3]),
				})
			}
		}
		if leaky {
			leaks++
		}
	}
	if c.grants > 0 {
		for i, r := range resources {
			f.Measures[r.measure] = new(float64(grown[i]) * 1000 / float64(c.grants))
		}
	}
	return f.Judged("client_leaks", leaks, c.judged)
}

// steady reports whether a number grew by enough each time.
func steady(seen []int64) bool {
	return !slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return seen[i+1]-seen[i] < leaksFrom })
}
