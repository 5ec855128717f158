package servers

import (
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
)

// TestParams: settings that the server or the lock does not support are rejected, and the error names the key.
func TestParams(t *testing.T) {
	for _, c := range []struct {
		set  func(*Params)
		want string
	}{
		{func(*Params) {}, ""},
		{func(p *Params) { p.Persistence = "some" }, "persistence"},
		{func(p *Params) { p.Restart = "late" }, "restart"},
		{func(p *Params) { p.Timeout = 1000 }, "timeout"},
		{func(p *Params) { p.Retry.Delay = 10 }, "retry.delay"},
		{func(p *Params) { p.Retry.Jitter = 2 }, "retry.jitter"},
	} {
		_, err := newSingle(nil, topology.Common{TTL: time.Second}, func(into any) error { c.set(into.(*Params)); return nil })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error is %v; it should name %q", err, c.want)
		}
	}
	if _, err := newSingle(nil, topology.Common{Nodes: 3}, func(any) error { return nil }); err == nil {
		t.Error("three nodes are taken for one server")
	}
	late, err := newSingle(nil, topology.Common{TTL: 3 * time.Second}, func(into any) error { into.(*Params).Restart = restartDelayed; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if d := late.Specs()[0].RestartDelay; d <= 3*time.Second {
		t.Errorf("a delayed restart comes after %s, within the TTL of 3s", d)
	}
}
