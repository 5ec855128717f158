package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/scenarios"
)

// limits are a scenario's limits as the cluster takes them.
func limits(l scenarios.Limits) cluster.Limits {
	return cluster.Limits{CPUs: l.CPUs, Memory: int64(l.Memory)}
}

// checkImages refuses an image for a kind of node that the scenario does not have.
func (p *Plan) checkImages(o Options) error {
	var keys []string
	for _, s := range p.specs {
		if !slices.Contains(keys, s.Image) {
			keys = append(keys, s.Image)
		}
	}
	for key := range o.Images {
		if !slices.Contains(keys, key) {
			return UsageError{Text: fmt.Sprintf("--image %s=...: %s has no such nodes; it has %s", key, p.scenario.Name, strings.Join(keys, ", "))}
		}
	}
	return nil
}

// checkPeople gives every user that steps name a client of its own, and collects the locks that steps name.
func (p *Plan) checkPeople(Options) error {
	first := 0
	if p.workload != nil {
		first = p.scenario.Workload.Clients
	}
	for i, st := range p.scenario.Steps {
		if st.Do == "" {
			continue
		}
		if !slices.Contains(p.people, st.User) {
			p.people = append(p.people, st.User)
			p.specs = append(p.specs, p.clientSpec(first+len(p.people)-1))
		}
		if !slices.Contains(p.locks, st.Lock) {
			p.locks = append(p.locks, st.Lock)
		}
		if (st.Do == "read" || st.Do == "write") && p.resource == nil {
			return p.wrong(stepPath(i, "do"), "%s needs something to act on; give workload.resource", st.Do)
		}
	}
	return nil
}

// namesOf returns the names of the nodes of a role.
func (p *Plan) namesOf(role cluster.Role) []string {
	var out []string
	for _, s := range p.specs {
		if s.Role == role {
			out = append(out, s.Name)
		}
	}
	return out
}

func (p *Plan) nodeNames() []string {
	var out []string
	for _, s := range p.specs {
		out = append(out, s.Name)
	}
	return out
}

// personNode returns the node name of the k-th user that steps name.
func (p *Plan) personNode(k int) string { return clientName(p.personIndex(k)) }

func (p *Plan) personIndex(k int) int {
	if p.workload == nil {
		return k
	}
	return p.scenario.Workload.Clients + k
}

func clientName(i int) string { return fmt.Sprintf("client-%d", i+1) }

func (p *Plan) clientSpec(i int) cluster.Spec {
	return cluster.Spec{
		Name: clientName(i), Role: cluster.Client, Image: cluster.SelfProgram, Stdio: true,
		Limits:  limits(p.scenario.Workload.Limits),
		Command: func(cluster.Place) []string { return []string{cluster.SelfProgram, "client"} },
	}
}
