package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/redis"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/scenarios"
	"github.com/lockquake/lockquake/workloads"
	resources "github.com/lockquake/lockquake/workloads/resource/all"
)

// preparedFault needs the preparation that its parameter names.
type preparedFault struct {
	What string `yaml:"what"`
}

func (preparedFault) Inject(context.Context, chaos.Scope) (chaos.Heal, history.Receipt, error) {
	panic("this test injects nothing")
}

func (f preparedFault) Preparations() []node.Preparation {
	return []node.Preparation{node.Preparation(f.What)}
}

// Excludes rejects nodes that were oiled.
func (f preparedFault) Excludes() (what node.Preparation, why string) {
	if f.What == "sand" {
		return "oil", "sand does not hold on oil"
	}
	return "", ""
}

// preparing is a provider with one preparation.
type preparing struct {
	cluster.Provider
	can node.Preparation
}

func (preparing) Name() string                             { return "preparing" }
func (preparing) Offers(chaos.Capability, node.Role) error { return nil }

func (p preparing) Prepares(what node.Preparation, s node.Spec, image string) error {
	switch {
	case what != p.can && p.can != "*":
		return chaos.Unavailable{What: string(what), Reason: "not here"}
	case s.Role == node.Client:
		return chaos.Unavailable{What: string(what), Reason: "not for clients, whatever is in " + image}
	}
	return nil
}

// unprepared is a provider without preparations.
type unprepared struct{ cluster.Provider }

func (unprepared) Name() string                             { return "unprepared" }
func (unprepared) Offers(chaos.Capability, node.Role) error { return nil }

func checkPrepared(t *testing.T, p cluster.Provider, steps string) (*Plan, error) {
	t.Helper()
	s, err := scenarios.Parse([]byte("name: x\nclaim: y\nbackend: {use: sentinel}\nsteps:\n  - {do: acquire, user: A}\n"+steps), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kind := chaos.Kind{Name: "needy", Lasting: true}
	kind.New = func(decode func(any) error) (chaos.Fault, error) {
		var f preparedFault
		err := decode(&f)
		return f, err
	}
	return Check(Request{Scenario: s, Provider: p, Catalog: Catalog{Backends: redis.Backends(), Faults: []chaos.Kind{kind}, Checkers: checkers.All()}})
}

func TestPreparationsReachAllPossibleTargets(t *testing.T) {
	p, err := checkPrepared(t, preparing{can: "oil"}, `  - {inject: needy, what: oil, on: leader}`)
	if err != nil {
		t.Fatal(err)
	}
	servers := 0
	for _, s := range p.Specs {
		want := s.Role == node.Server
		if got := slices.Contains(s.Preparations, node.Preparation("oil")); got != want {
			t.Errorf("%s is prepared: %t, want %t", s.Name, got, want)
		}
		if want {
			servers++
		}
	}
	if servers < 3 {
		t.Errorf("there are %d servers", servers)
	}
	p, err = checkPrepared(t, preparing{can: "oil"}, "  - {inject: needy, what: oil, on: redis-1, as: a}\n  - {heal: a}\n  - {inject: needy, what: oil, on: redis-1}\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Specs {
		if want := s.Name == "redis-1"; want != (len(s.Preparations) == 1) || !want && len(s.Preparations) > 0 {
			t.Errorf("%s is prepared by %v", s.Name, s.Preparations)
		}
	}
}

func TestPreparationsThatCannotBeHadAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		provider cluster.Provider
		steps    string
		want     string
	}{
		"not this one":                      {preparing{can: "oil"}, `  - {inject: needy, what: sand, on: all}`, "redis-1: sand is unavailable: not here"},
		"not for these":                     {preparing{can: "oil"}, `  - {inject: needy, what: oil, on: A}`, "client-1: oil is unavailable: not for clients"},
		"a provider that knows of none":     {unprepared{}, `  - {inject: needy, what: oil, on: all}`, "prepares no nodes"},
		"both on one node":                  {preparing{can: "*"}, "  - {inject: needy, what: sand, on: redis-1}\n  - {inject: needy, what: oil, on: leader}\n", "redis-1: sand does not hold on oil"},
		"who may be a target, but need not": {preparing{can: "oil"}, `  - {inject: needy, what: oil, on: "redis-1, clients"}`, "not for clients"},
	} {
		_, err := checkPrepared(t, c.provider, c.steps)
		if missing := (MissingError{}); !errors.As(err, &missing) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// imageless is a provider of containers that has one image.
type imageless struct {
	cluster.Provider
	has string
}

func (imageless) Name() string                             { return "imageless" }
func (imageless) Offers(chaos.Capability, node.Role) error { return nil }
func (imageless) EngineID(context.Context) (string, error) { return "", nil }

func (p imageless) HasImage(key string) error {
	if key != p.has && key != node.SelfProgram {
		return chaos.Unavailable{What: "image " + key, Reason: "make it"}
	}
	return nil
}

// TestAMissingImageIsKnownBeforeTheRun: for a program that replaces the client, and for servers, but not if another
// image is named.
func TestAMissingImageIsKnownBeforeTheRun(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		has, client, want string
		images            map[string]string
	}{
		{"redis", "{run: [python3, /my_lock.py]}", "x: client-1 cannot be made: image python is unavailable: make it", nil},
		{"redis", "{run: [python3, /my_lock.py]}", "", map[string]string{"python": "python:3.12"}},
		{"redis", "{run: [python3, /my_lock.py], image: 'python:3.12'}", "", nil},
		{"python", "{run: [python3, /my_lock.py]}", "x: redis-1 cannot be made: image redis is unavailable: make it", nil},
	} {
		s, err := scenarios.Parse([]byte("name: x\nclaim: y\nbackend: {use: redis}\nworkload: {use: counter, client: "+c.client+", resource: {use: register}}\n"), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Check(Request{Scenario: s, Provider: imageless{has: c.has}, Images: c.images, Catalog: Catalog{
			Backends: redis.Backends(), Workloads: workloads.All(), Resources: resources.All(), Checkers: checkers.All(),
		}})
		var missing MissingError
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && (got != c.want || !errors.As(err, &missing)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// different is a provider that cannot make clients alike.
type different struct{ cluster.Provider }

func (different) Name() string { return "different" }
func (different) Offers(c chaos.Capability, _ node.Role) error {
	if c == cluster.CanAlike {
		return chaos.Unavailable{What: string(c), Reason: "not here"}
	}
	return nil
}

func TestClientsThatAreAlikeAreAskedFor(t *testing.T) {
	for p, want := range map[cluster.Provider]string{different{}: "cannot be made alike", preparing{}: ""} {
		s, err := scenarios.Parse([]byte("name: x\nclaim: y\nbackend: {use: redis}\nworkload: {alike: true}\nsteps:\n  - {do: acquire, user: A}\n"), "x.yaml")
		if err != nil {
			t.Fatal(err)
		}
		planned, err := Check(Request{Scenario: s, Provider: p, Catalog: Catalog{Backends: redis.Backends(), Checkers: checkers.All()}})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", p.Name(), err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range planned.Specs {
			if s.Alike != (s.Role == node.Client) {
				t.Errorf("%s is alike: %t", s.Name, s.Alike)
			}
		}
	}
}
