package scenarios

import (
	"slices"
	"time"

	"github.com/goccy/go-yaml/ast"
)

func (r reader) workload(s *Scenario) error {
	s.Workload = Workload{Clients: 1, Users: 1, Timeout: DefaultTimeout, Resource: Resource{Guard: DefaultGuard}}
	m, err := r.section("workload")
	if err != nil || m == nil {
		return err
	}
	var plainKeys []*ast.MappingValueNode
	for _, v := range m.Values {
		if keyOf(v) != "resource" {
			plainKeys = append(plainKeys, v)
		}
	}
	w := struct {
		Use            string
		Clients, Users int
		Renew          bool
		Check          string
		Timeout        time.Duration
		Limits         `yaml:",inline"`
	}{Clients: 1, Users: 1, Timeout: DefaultTimeout}
	p, err := r.own(mapping(m, plainKeys), "workload", &w)
	if err != nil {
		return err
	}
	p.common = append(p.common, "resource")
	for _, n := range []struct {
		key   string
		value int
	}{{"clients", w.Clients}, {"users", w.Users}} {
		if n.value < 1 || n.value > maxIndex {
			return r.errorf("workload."+n.key, "%d is out of range: 1 to %d", n.value, maxIndex)
		}
	}
	if entry(m, "check") != nil && !slices.Contains(looks, w.Check) {
		return r.errorf("workload.check", "%q is not known; %s", w.Check, instead(w.Check, looks))
	}
	if w.Timeout == 0 {
		return r.errorf("workload.timeout", "nothing is done in no time; write a time above 0s")
	}
	if err := r.limits(m, "workload", w.Limits); err != nil {
		return err
	}
	resource, err := r.resource(m)
	s.Workload = Workload{
		Use: w.Use, Clients: w.Clients, Users: w.Users, Renew: w.Renew, Check: w.Check, Timeout: w.Timeout, Limits: w.Limits,
		Resource: resource, Params: p,
	}
	return err
}

func (r reader) resource(workload *ast.MappingNode) (Resource, error) {
	out := Resource{Guard: DefaultGuard}
	v := entry(workload, "resource")
	if v == nil {
		return out, nil
	}
	m, err := r.mapping(v.Value, "workload.resource", v)
	if err != nil {
		return out, err
	}
	k := struct{ Use, Guard string }{Guard: DefaultGuard}
	p, err := r.own(m, "workload.resource", &k)
	if err != nil {
		return out, err
	}
	if k.Use == "" {
		return out, r.missing("workload.resource.use", "the name of a resource, such as register")
	}
	if !slices.Contains(guards, k.Guard) {
		return out, r.errorf("workload.resource.guard", "%q is not known; %s", k.Guard, instead(k.Guard, guards))
	}
	return Resource{Use: k.Use, Guard: k.Guard, Params: p}, nil
}
