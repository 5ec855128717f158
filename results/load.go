// Load: how much work the resource has for each write that counts.
//
// The reads and writes that reached the resource, served or refused, for each write that a client saw acknowledged. A lock before an
// optimistic resource is a gatekeeper: it keeps away who could only be refused. The same story without it tells what that is worth.
//
// It cannot see requests that never arrived, nor tell those of the workload from those of steps.

package results

import "github.com/lockquake/lockquake/history"

type load struct {
	run          Run
	accesses     int64
	acknowledged int64
}

func newLoad(run Run) Checker { return &load{run: run} }

// Observe takes the next event.
func (c *load) Observe(e *history.Event) {
	switch {
	case (e.Kind == history.EffectRead || e.Kind == history.EffectWrite) && e.Phase != history.Info:
		c.accesses++
	case e.Kind == history.Write && e.Phase == history.Ok:
		c.acknowledged++
	}
}

// Finish returns the finding.
func (c *load) Finish() Finding {
	f := Finding{Checker: "load", Verdict: Clean, Measures: map[string]*float64{"accesses_per_write": nil}}
	switch {
	case c.run.Resource == "":
		f.Verdict, f.Skipped = Unknown, "nothing is protected: there is no resource"
	case c.acknowledged == 0:
		f.Verdict, f.Skipped = Unknown, "no write was acknowledged"
	default:
		f.Measures["accesses_per_write"] = measure(float64(c.accesses) / float64(c.acknowledged))
	}
	return f
}
