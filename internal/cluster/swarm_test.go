package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/node"
)

func TestNodesAreSpreadOverHosts(t *testing.T) {
	spec := func(role node.Role, n int) []node.Spec { return slices.Repeat([]node.Spec{{Role: role}}, n) }
	hosts := []swarmHost{{name: "a", labels: map[string]string{"disk": "nvme"}}, {name: "b"}, {name: "c", labels: map[string]string{"load": "yes"}}}
	three := slices.Concat(spec(node.Server, 3), spec(node.Client, 4), spec(node.Resource, 1))
	for _, tt := range []struct {
		name  string
		specs []node.Spec
		hosts []swarmHost
		rule  node.Hosts
		want  []int // nil: refused
	}{
		{"in turn", three, hosts, node.Hosts{}, []int{0, 1, 2, 0, 1, 2, 0, 1}},
		{"one host", three, hosts[:1], node.Hosts{}, []int{0, 0, 0, 0, 0, 0, 0, 0}},
		{"apart", three, hosts, node.Hosts{Apart: true}, []int{0, 1, 0, 2, 2, 2, 2, 2}},
		{"apart, one server", slices.Concat(spec(node.Server, 1), spec(node.Client, 2)), hosts, node.Hosts{Apart: true}, []int{0, 1, 2}},
		{"apart on one host", three, hosts[:1], node.Hosts{Apart: true}, nil},
		{"by labels", three, hosts, node.Hosts{Servers: "disk=nvme", Clients: "load=yes"}, []int{0, 0, 0, 2, 2, 2, 2, 1}},
		{"no such label", three, hosts, node.Hosts{Servers: "disk=tape"}, nil},
		{"a label that is not where apart wants it", three, hosts, node.Hosts{Apart: true, Clients: "disk=nvme"}, nil},
	} {
		on, err := placeOn(tt.specs, tt.hosts, tt.rule)
		if tt.want == nil {
			if !errors.As(err, new(chaos.Unavailable)) {
				t.Errorf("%s: %v, %v; want it refused", tt.name, on, err)
			}
			continue
		}
		if err != nil || !slices.Equal(on, tt.want) {
			t.Errorf("%s: %v, %v; want %v", tt.name, on, err, tt.want)
		}
	}
}

func TestMissingCapabilitiesNameTheNode(t *testing.T) {
	offers := func(c chaos.Capability, r node.Role) error {
		if c == "move" && r == node.Server {
			return chaos.Unavailable{What: "move", Reason: "the kernel is too old"}
		}
		return nil
	}
	specs := []node.Spec{{Name: "redis-1", Role: node.Server}, {Name: "redis-2", Role: node.Server}, {Name: "client-1", Role: node.Client}}
	if err := lacking(specs, map[string][]chaos.Capability{"redis-1": {"stop"}, "client-1": {"move"}, "redis-3": {"move"}}, offers); err != nil {
		t.Errorf("refused where nothing that is needed lacks: %v", err)
	}
	err := lacking(specs, map[string][]chaos.Capability{"redis-2": {"move", "stop", "move"}}, offers)
	if !errors.As(err, new(chaos.Unavailable)) || strings.Count(err.Error(), "redis-2: ") != 1 || !strings.Contains(err.Error(), "too old") {
		t.Errorf("%v, want it told once that redis-2 cannot be moved", err)
	}
}

// TestAHostWithoutAgentIsRefused: faults need the agent, whatever the engine could do; limits need only the engine.
func TestAHostWithoutAgentIsRefused(t *testing.T) {
	m := &member{swarmHost: swarmHost{name: "b"}, run: &dockerRun{agentName: "agent-b"}, of: Cluster{Describe: map[string]string{"agent-b": "not started: no such device"}}}
	r := &swarmRun{members: []*member{m}}
	err := r.each(func(_ int, m *member) error {
		return lacking([]node.Spec{{Name: "redis-1", Role: node.Server}}, map[string][]chaos.Capability{"redis-1": {chaos.CanPause}}, m.offers(t.Context()))
	})
	if !errors.As(err, new(chaos.Unavailable)) || !strings.HasPrefix(err.Error(), "host b: redis-1: pause is unavailable: ") || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("%v", err)
	}
}

// TestErrorsNameTheManagersHost: errors name the manager's host, except for what no host could do.
func TestErrorsNameTheManagersHost(t *testing.T) {
	s := &swarm{localName: "a"}
	for _, tt := range []struct {
		given error
		want  string
	}{
		{nil, "<nil>"},
		{chaos.Unavailable{What: "netem", Reason: "no module"}, "netem is unavailable: host a: no module"},
		{chaos.Unavailable{What: "data", Reason: "a client keeps none", Never: true}, "data is unavailable: a client keeps none"},
		{errors.New("no answer"), "no answer"},
	} {
		if got := fmt.Sprint(s.onManager(tt.given)); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.given, got, tt.want)
		}
	}
}

// TestEachHostIsFirstInTurn: after a survey each host is first in turn.
func TestEachHostIsFirstInTurn(t *testing.T) {
	hosts := []swarmHost{{name: "a"}, {name: "b"}}
	s := &swarm{}
	for i, want := range []string{"ab", "ab", "ab", "ba", "ab"} {
		if i == 2 {
			s.unfit = map[string]string{}
		}
		got := s.inTurn(hosts)
		if got[0].name+got[1].name != want {
			t.Errorf("run %d: %v, want %s", i, got, want)
		}
	}
	if got := s.inTurn(nil); len(got) != 0 {
		t.Errorf("of none: %v", got)
	}
}
