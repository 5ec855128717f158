package scenarios

import (
	"slices"

	"github.com/goccy/go-yaml/ast"
)

func (r reader) workload(s *Scenario) error {
	s.Workload = Workload{Clients: 1, Users: 1, Timeout: DefaultTimeout, Resource: Resource{Guard: DefaultGuard}}
	m, err := r.section("workload")
	if err != nil || m == nil {
		return err
	}
	w := s.Workload
	if w.Params, err = r.own(without(without(m, "resource"), "client"), "workload", &w); err != nil {
		return err
	}
	w.Params.common = append(w.Params.common, "resource", "client")
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
	if w.Margin > 0 && w.Check != "validity" {
		return r.errorf("workload.margin", "the remaining validity is not checked; add check: validity")
	}
	if w.Timeout == 0 {
		return r.errorf("workload.timeout", "an operation needs some time; write a time above 0s")
	}
	if err := r.limits(m, "workload", w.Limits); err != nil {
		return err
	}
	if w.Client, err = clientReader(r).client(m, "workload"); err != nil {
		return err
	}
	w.Resource, err = r.resource(m)
	s.Workload = w
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
	if out.Params, err = r.own(m, "workload.resource", &out); err != nil {
		return out, err
	}
	if out.Use == "" {
		return out, r.missing("workload.resource.use", "the name of a resource, such as register")
	}
	if !slices.Contains(guards, out.Guard) {
		return out, r.errorf("workload.resource.guard", "%q is not known; %s", out.Guard, instead(out.Guard, guards))
	}
	return out, nil
}
