// Load: how much work the resource has for each write that counts.
//
// It divides the reads and writes that reached the resource, served or refused, by the writes that a client saw
// acknowledged. A lock before an optimistic resource is a gatekeeper: it keeps away accesses that would only be
// refused. The same story without the lock shows how many those are. Right and false refusals both count, so that a
// run without a lock, which has no holders, is comparable.
//
// It cannot see requests that never arrived, and does not distinguish those of the workload from those of steps.

package costs

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type load struct {
	run          results.Run
	accesses     int64
	refused      int64
	acknowledged int64
}

// Load is the checker.
var Load = results.CheckerKind{
	Name: "load", New: newLoad,
	Doc: "The number of reads and writes that reached the resource, served or refused, for each acknowledged write.",
	Counts: []results.Quantity{
		{
			Name: "guard_refusals", Doc: "reads and writes that the resource's guard refused, rightly or not",
			Of: "accesses", Timeless: true,
		},
	},
	Measures: []results.Quantity{
		{
			Name: "accesses_per_write", Doc: "reads and writes that reached the resource, served or refused, for each acknowledged write: a lock lowers it for an optimistic resource",
			Timeless: true,
		},
	},
}

func newLoad(run results.Run) results.Checker { return &load{run: run} }

// Observe takes the next event.
func (c *load) Observe(e *history.Event) {
	switch {
	case (e.Kind == history.EffectRead || e.Kind == history.EffectWrite) && e.Phase != history.Info:
		c.accesses++
		if e.Code == history.CodeFenced || e.Code == history.CodeConditional && e.Phase == history.Fail {
			c.refused++
		}
	case e.Kind == history.Write && e.Phase == history.Ok:
		c.acknowledged++
	}
}

// Finish returns the finding.
func (c *load) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean}
	if c.run.Resource == "" {
		return f.NotApplicable("there is no resource")
	}
	f.Counts = map[string]*int64{"guard_refusals": &c.refused}
	f.Chances = map[string]results.Chances{"guard_refusals": {N: c.accesses}}
	if c.acknowledged > 0 {
		f.Measures = map[string]*float64{"accesses_per_write": new(float64(c.accesses) / float64(c.acknowledged))}
	}
	return f
}
