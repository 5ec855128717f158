// Minority effects: writes that fewer than a majority of the replicas applied.
//
// They are no effects of a replicated resource, and no violation: a holder whose time was over may well reach a
// replica on which no later epoch is marked. The next holder that marks a majority, and finds a later value there,
// overrules that replica.
//
// It cannot see a write on a replica that died before it could report it.

package harm

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type minorityEffects struct {
	run     results.Run
	n       int64
	effects int64
	list    []results.Witness
}

// MinorityEffects counts writes of a replicated resource that no majority applied.
var MinorityEffects = results.CheckerKind{
	Name: "minority_effects", New: newMinorityEffects, Resource: true,
	Doc: "Writes to a replicated resource that only a minority of the replicas applied: they do not count as effects.",
	Counts: []results.Quantity{
		{
			Name: "minority_effects", Doc: "writes to a replicated resource that only a minority of the replicas applied; they are no effects",
			Of: "effects", Timeless: true, NeedsAll: true,
		},
	},
	Witnesses: results.Aside("minority_effect"),
}

func newMinorityEffects(run results.Run) results.Checker { return &minorityEffects{run: run} }

// Observe takes the next event.
func (c *minorityEffects) Observe(e *history.Event) {
	if (e.Kind == history.EffectRead || e.Kind == history.EffectWrite) && e.Phase != history.Info {
		c.effects++
	}
	if e.Kind != history.EffectWrite || e.Phase != history.Info {
		return
	}
	c.n++
	if len(c.list) < results.MaxWitnesses {
		c.list = append(c.list, results.Witness{
			Kind: "minority_effect", Lock: c.run.LockName(e.Lock), From: e.Time, To: e.Time,
			Events: []history.Event{*e},
			Text: fmt.Sprintf("a write of %d by %v under %s never reached a majority of the replicas", e.Value, e.User,
				c.run.LockName(e.Lock)),
		})
	}
}

// Finish returns the finding.
func (c *minorityEffects) Finish() results.Finding {
	f := results.Finding{Verdict: results.Clean, Witnesses: c.list}
	if len(c.run.Replicas) == 0 {
		return f.NotApplicable("the resource is not replicated")
	}
	f.Counts = map[string]*int64{"minority_effects": new(c.n)}
	f.Chances = map[string]results.Chances{"minority_effects": {N: c.effects}}
	return f
}
