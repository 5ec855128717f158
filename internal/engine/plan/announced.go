package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource"
)

// everywhere lists the points that every client announces.
var everywhere = []string{workloads.PointAcquired, workloads.PointRead, workloads.PointWrite, workloads.PointRelease}

// CheckAnnounced rejects a plan that needs what an external client's hello does not announce:
//   - steps that arm a point, which would never be reached, or that give an order;
//   - a workload that renews grants;
//   - a check or an expectation that rests on reports of a loss;
//   - several permits.
func CheckAnnounced(p *Plan, client string, h *wire.Hello) error {
	if h.Process == wire.ProcessClient {
		return nil
	}
	w := p.Scenario.Workload
	renews, untold := w.Renew || p.Renews, ""
	switch {
	case renews && !h.Takes(wire.DoRenew):
		return UsageError{Text: fmt.Sprintf("%s: workload: %s cannot extend its grants: renew is not among the orders in its hello", client, h.Process)}
	case slices.ContainsFunc(p.Scenario.Expect,
		func(e scenarios.Expectation) bool { return e.Name == "untold_losses" }):
		untold = "expect.untold_losses"
	case w.Check == "signal" && !renews:
		untold = "workload.check"
	}
	if untold != "" && !h.Tells {
		return UsageError{Text: fmt.Sprintf("%s: %s: %s reports no losses: its hello lacks tells", client, untold, h.Process)}
	}
	if p.Rules().Permits > 0 && !h.Permits {
		return UsageError{Text: fmt.Sprintf("%s: backend.permits: %s has no locks with several permits: its hello lacks permits", client, h.Process)}
	}
	known := slices.Concat(everywhere, h.Points)
	if p.Guard.TwoSteps {
		known = append(known, resource.PointTokenChecked)
	}
	for i, st := range p.Scenario.Steps {
		k := slices.Index(p.StepUsers, st.User)
		if k < 0 || p.StepUserNode(k) != client {
			continue
		}
		if !h.Takes(Order(st)) {
			err := p.Scenario.Errorf(stepPath(i, "do"), "%s takes no order %s: it is not among the orders in its hello",
				h.Process, Order(st))
			return UsageError{Text: fmt.Sprintf("%s: %v", client, err)}
		}
		if st.Do != wire.DoArm || slices.Contains(known, st.Point) {
			continue
		}
		err := p.Scenario.Errorf(stepPath(i, "point"), "%s does not announce it; it announces %s", h.Process,
			strings.Join(known, ", "))
		return UsageError{Text: fmt.Sprintf("%s: %v", client, err)}
	}
	return nil
}
