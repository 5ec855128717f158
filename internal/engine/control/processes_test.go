package control

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/deployment"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// TestWhoWasJudgedIsTold records what nodes report about themselves: lockquake's own client names the modules of all
// locks, a foreign one its own.
func TestWhoWasJudgedIsTold(t *testing.T) {
	t.Parallel()
	all := map[string]string{"redis": "v9", "etcd": "v3"}
	for _, c := range []struct {
		name      string
		index     int
		hello     *wire.Hello
		libraries map[string]string
		foreign   bool
		unknown   int
	}{
		{"own client", 0, &wire.Hello{Process: "lockquake client", Software: "1", Libraries: all}, map[string]string{"redis": "v9"}, false, 0},
		{"own resource", -1, &wire.Hello{Process: "lockquake register"}, nil, false, 0},
		{"a resource as client", 0, &wire.Hello{Process: "lockquake register"}, nil, true, 0},
		{"foreign client", 0, &wire.Hello{Process: "kazoo", Libraries: all}, all, true, 0},
		{"nameless client", 0, &wire.Hello{}, nil, true, 1},
		{"never came", 0, nil, nil, false, 0},
	} {
		p := &Processes{Dir: &rundir.Dir{Log: slog.New(slog.DiscardHandler)}, Plan: &plan.Plan{Backend: listed.Backend{Backend: backends.Backend{Name: "redis"}}}}
		p.Modules = func(backend, _ string) []string { return []string{backend} }
		st := results.ClientStats{}
		p.addProgram(&st, &Process{Node: &cluster.Node{}, index: c.index, hello: c.hello})
		if h := c.hello; h != nil && (st.Process != h.Process || st.Software != h.Software) {
			t.Errorf("%s: told is %+v of %+v", c.name, st.Client, *h)
		}
		if !maps.Equal(st.Libraries, c.libraries) || st.Foreign != c.foreign || len(p.Dir.Env.Unknown) != c.unknown {
			t.Errorf("%s: told is %+v, unknown because of %q", c.name, st.Client, p.Dir.Env.Unknown)
		}
	}
	if len(all) != 2 {
		t.Error("what the hello said was changed")
	}
}

// TestThePasswordOfTheResource: it is that of the first of its nodes that has one.
func TestThePasswordOfTheResource(t *testing.T) {
	t.Parallel()
	spec := func(name string) node.Spec {
		return node.Spec{Name: name, Role: node.Resource, Ports: []node.Port{{Name: name}}}
	}
	nodes, err := cluster.Attach([]node.Spec{spec("a"), spec("b")}, []cluster.Endpoint{
		{Port: "a", Address: "127.0.0.1:1"}, {Port: "b", Address: "127.0.0.1:2", Login: node.Login{Password: "secret"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := (StartFrames{Nodes: &deployment.Nodes{Cluster: &cluster.Cluster{Nodes: nodes}}}).resourcePassword(); got != "secret" {
		t.Errorf("it is %q", got)
	}
}
