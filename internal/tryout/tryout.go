// Package tryout writes the scenarios that try out faults one by one: for doctor, for the tests of faults and
// backends, and for the soak. A fault's kind says which keys it needs.
package tryout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

// Entry is one fault at one target.
type Entry struct {
	Fault string
	On    string
	Keys  string // its own, as YAML: "by: +60s"
	At    time.Duration
	For   time.Duration // 0: until the end, or until it ends by itself
}

// Options says what to try.
type Options struct {
	Name    string
	Backend string
	Set     string // keys of the backend, as YAML: "node_timeout: 30s"
	Entries []Entry
	For     time.Duration // of the load
}

// Scenario returns the text of a scenario that demands only that its faults act and are healed. Their harm to the
// lock is counted, without a demand.
func Scenario(o Options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nclaim: Each fault acts until its heal, and is then gone.\n", o.Name)
	fmt.Fprintf(&b, "backend: {%s}\n", keys("use: "+o.Backend, o.Set))
	b.WriteString("workload: {use: counter, clients: 2, hold: 5ms, resource: {use: register, guard: none}}\nchaos:\n")
	for _, e := range o.Entries {
		lasts := ""
		if e.For > 0 {
			lasts = "for: " + e.For.String()
		}
		fmt.Fprintf(&b, "  - {%s}\n", keys("use: "+e.Fault, fmt.Sprintf("on: %q", e.On), e.Keys, "at: "+e.At.String(),
			lasts))
	}
	fmt.Fprintf(&b, "run: {for: %s, seed: 1}\n", o.For)
	b.WriteString(`expect: {judged: ">=1", double_grants: ">=0", foreign_releases: ">=0", stale_writes: ">=0", lost_updates: ">=0", stuck_locks: ">=0", wedges: ">=0"}` + "\n")
	return b.String()
}

func keys(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(s string) bool { return s == "" }), ", ")
}

// One tries one fault on one backend: on the leading server if there is one, else on the first.
func One(k chaos.Kind, number int, b listed.Backend) (Options, error) {
	on, err := target(b)
	e := Entry{Fault: k.Name, On: on, Keys: k.Trials()[number], At: time.Second}
	f, wrong := k.New(func(into any) error { return yaml.Unmarshal([]byte("{"+e.Keys+"}"), into) })
	if wrong != nil {
		return Options{}, fmt.Errorf("fault %s, tried with {%s}: %w", k.Name, e.Keys, wrong)
	}
	if k.Lasts(f) {
		e.For = time.Second
	}
	name := fmt.Sprintf("fault-%s-%s", k.Name, b.Name)
	if number > 0 {
		name += fmt.Sprintf("-%d", number+1)
	}
	o := Options{Name: name, Backend: b.Name, Entries: []Entry{e}, For: 4 * time.Second}
	if k.Syncs {
		o.Set = b.Syncing
	}
	return o, err
}

// target returns the node that a fault hurts most: the leader, or the shard's primary, if the service promotes
// servers; else the first server.
func target(b listed.Backend) (string, error) {
	t, err := Topology(b)
	if err != nil {
		return "", err
	}
	if p, ok := chaos.As[chaos.Promoter](t.Service(nil)); ok && p.Promotes() == nil {
		return "leader(lock-0)", nil
	}
	for _, s := range t.Specs() {
		if s.Role == node.Server {
			return s.Name, nil
		}
	}
	return "", fmt.Errorf("backend %s has no servers", b.Name)
}

// Applies reports whether there is something to try: a backend with servers, a fault that acts, and a service that
// has what the fault needs.
func Applies(k chaos.Kind, b listed.Backend) bool {
	if b.InProcess || k.Name == "noop" {
		return false
	}
	t, err := Topology(b)
	if err != nil {
		return false
	}
	if builtIn := func(s node.Spec) bool { return s.Image == node.SelfProgram }; k.Shell &&
		slices.ContainsFunc(t.Specs(), builtIn) {
		return false // the image has no shell
	}
	f, err := k.New(func(any) error { return nil })
	if err != nil {
		return true // it takes keys, and so needs no support by the service
	}
	w, ok := f.(chaos.Wanting)
	return !ok || w.Wants(t.Service(nil)) == nil
}

// Topology returns a backend's topology with all defaults, to query what it supports.
func Topology(b listed.Backend) (topology.Topology, error) {
	return b.New(topology.Common{TTL: 10 * time.Second}, func(any) error { return nil })
}
