// Minority effects: writes that fewer than a majority of the replicas applied.
//
// They are no effects of a replicated resource, and no violation: a holder whose time was over may well reach a replica on which
// no later epoch is marked. What stands there is overruled by whoever marks a majority next and finds a later value on it.
//
// It cannot see a write that a replica applied and that died with the replica before it could tell.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

type minorityEffects struct {
	run     Run
	n       int64
	effects int64
	list    []Witness
}

func newMinorityEffects(run Run) Checker { return &minorityEffects{run: run} }

// Observe takes the next event.
func (c *minorityEffects) Observe(e *history.Event) {
	if (e.Kind == history.EffectRead || e.Kind == history.EffectWrite) && e.Phase != history.Info {
		c.effects++
	}
	if e.Kind != history.EffectWrite || e.Phase != history.Info {
		return
	}
	c.n++
	if len(c.list) < MaxWitnesses {
		c.list = append(c.list, Witness{
			Kind: "minority_effect", Lock: lockName(c.run, e.Lock), From: e.Time, To: e.Time, Events: []history.Event{*e},
			Text: fmt.Sprintf("a write of %d by %v under %s never came to a majority of the replicas", e.Value, e.User, lockName(c.run, e.Lock)),
		})
	}
}

// Finish returns the finding.
func (c *minorityEffects) Finish() Finding {
	f := Finding{Checker: "minority_effects", Verdict: Clean, Witnesses: c.list}
	if len(c.run.Replicas) == 0 {
		return skipped(f, "the resource is not replicated", []string{"minority_effects"})
	}
	f.Counts = map[string]*int64{"minority_effects": count(c.n)}
	f.Chances = map[string]Chances{"minority_effects": {c.effects, "effects"}}
	return f
}
