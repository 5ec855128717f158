package engine

import (
	"log/slog"
	"maps"
	"testing"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/wire"
	"github.com/lockquake/lockquake/results"
)

// TestWhoWasJudgedIsTold takes down what nodes say that they are: lockquake's own client names the modules of all locks, a foreign one its own.
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
		p := &processes{record: &record{log: slog.New(slog.DiscardHandler)}, plan: &Plan{backend: listed.Backend{Backend: backends.Backend{Name: "redis"}}}}
		p.options.ClientModules = func(backend, _ string) []string { return []string{backend} }
		st := results.ClientStats{}
		p.addProgram(&st, &process{node: &cluster.Node{}, index: c.index, hello: c.hello})
		if h := c.hello; h != nil && (st.Process != h.Process || st.Software != h.Software) {
			t.Errorf("%s: told is %+v of %+v", c.name, st.Client, *h)
		}
		if !maps.Equal(st.Libraries, c.libraries) || st.Foreign != c.foreign || len(p.record.env.Unknown) != c.unknown {
			t.Errorf("%s: told is %+v, unknown because of %q", c.name, st.Client, p.record.env.Unknown)
		}
	}
	if len(all) != 2 {
		t.Error("what the hello said was changed")
	}
}
