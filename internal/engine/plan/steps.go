package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/scenarios"
)

// stepPlanner makes the injections of the steps, and checks that everything they name exists.
type stepPlanner struct {
	plan *Plan
	made injections
}

func (p stepPlanner) find() error {
	for i, st := range p.plan.Scenario.Steps {
		switch {
		case st.Inject != "":
			inj, err := p.made.make(faultKeys{
				path: fmt.Sprintf("steps.%d", i), key: "inject", use: st.Inject,
				on: st.On, params: st.Params,
			})
			if err != nil {
				return err
			}
			inj.As, inj.Entry = st.As, i+1
			p.plan.StepFaults[i] = inj
		case st.Await != "" && st.User != "" && !slices.Contains(p.plan.StepUsers, st.User):
			return p.plan.wrong(stepPath(i, "user"), "no user %q acts in these steps; there are %s",
				st.User, strings.Join(p.plan.StepUsers, ", "))
		case st.Await == "fact":
			if err := p.checkQuestion(i, "node", st.Node, "fact", st.Fact); err != nil {
				return err
			}
		case st.Observe != "":
			for n := range strings.SplitSeq(st.On, ",") {
				n = strings.TrimSpace(n)
				if err := p.checkQuestion(i, "on", n, "observe", st.Observe); err != nil {
					return err
				}
				p.plan.Observed[i] = append(p.plan.Observed[i], n)
			}
		case st.Of != "":
			if err := p.checkOf(i, st); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOf rejects an await for something that its injection can never show.
func (p stepPlanner) checkOf(i int, st scenarios.Step) error {
	for _, inj := range p.plan.StepFaults {
		if inj.As != st.Of {
			continue
		}
		if st.Await == "bitten" && !inj.Kind.Counts {
			return p.plan.wrong(stepPath(i, "of"), "%s counts no packets to await", inj.Kind.Name)
		}
		if _, ok := inj.Selector.Leader(p.plan.Topology.Service(nil)); st.Await == "led" && !ok {
			return p.plan.wrong(stepPath(i, "of"), "%s is not on leader: no other node takes the lead after it", st.Of)
		}
	}
	return nil
}

// checkQuestion rejects questions that cannot be asked. nodeKey and factKey are the step's keys for the node and the
// fact.
func (p stepPlanner) checkQuestion(i int, nodeKey, node, factKey, fact string) error {
	if node != history.Service {
		return errors.Join(p.checkNode(i, nodeKey, node), p.checkFact(i, factKey, fact))
	}
	if _, ok := p.plan.Topology.Service(nil).(topology.Store); !ok {
		return p.plan.wrong(stepPath(i, nodeKey), "%s cannot name the owner of a lock",
			p.plan.Backend.Name)
	}
	if !strings.HasPrefix(fact, history.FactHolder) && !strings.HasPrefix(fact, history.FactKeys) {
		return p.plan.wrong(stepPath(i, factKey),
			"the service as a whole has no fact %q; it has %sLOCK, %sLOCK", fact, history.FactHolder,
			history.FactKeys)
	}
	return nil
}

// checkNode rejects a node that the run does not have; key is the step's key for it.
func (p stepPlanner) checkNode(i int, key, node string) error {
	if !slices.Contains(p.plan.Specs.Names(), node) {
		return p.plan.wrong(stepPath(i, key), "there is no node %q; there are %s", node,
			strings.Join(p.plan.Specs.Names(), ", "))
	}
	return nil
}

// checkFact rejects a fact that the service does not know; key is the step's key for it.
func (p stepPlanner) checkFact(i int, key, fact string) error {
	known := slices.Sorted(maps.Keys(p.plan.Topology.Service(nil).Facts()))
	// A fact "holder:LOCK" is requested with the name of a lock: "holder:lock-0".
	if !slices.ContainsFunc(known, func(f string) bool {
		prefix, named := strings.CutSuffix(f, "LOCK")
		return f == fact || named && strings.HasPrefix(fact, prefix)
	}) {
		return p.plan.wrong(stepPath(i, key), "%s has no fact %q; it has %s", p.plan.Backend.Name, fact,
			strings.Join(known, ", "))
	}
	return nil
}
