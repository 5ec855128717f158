//go:build integration

package cluster

import (
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/all"
)

// dataBehaves tests data faults with a provider of real processes. The node counts its starts in its data directory.
func dataBehaves(t *testing.T, p Provider, run string) {
	_, one, two, _ := opened(t, p, run)
	heal := injected(t, "kill", "data: keep", chaos.Scope{On: []chaos.Node{one}})
	healed(t, "kill", heal)
	serves(t, one, "start 2")
	heal = injected(t, "kill", "data: lose", chaos.Scope{On: []chaos.Node{one}})
	healed(t, "kill", heal)
	serves(t, one, "start 1")
	heal, r, err := inject(t, "restart", "data: lose", chaos.Scope{On: []chaos.Node{two}})
	if err != nil || !strings.Contains(r.Evidence, "held 1 entries of 1 bytes before") || !strings.Contains(r.Evidence, "then nothing; ") {
		t.Errorf("restart: %v, %v", r, err)
	}
	serves(t, two, "start 1")
	healed(t, "restart", heal)
}

func TestDockerDataIsKeptOrLost(t *testing.T) {
	t.Parallel()
	dataBehaves(t, engine(t, DockerOptions{Mechanisms: all.All()}), "tdata")
}

func TestLocalDataIsKeptOrLost(t *testing.T) {
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	dataBehaves(t, p, "tdatal")
}

// TestDataCannotBeLostWithoutAnAgent runs the fault with the engine alone.
func TestDataCannotBeLostWithoutAnAgent(t *testing.T) {
	t.Parallel()
	_, one, _, _ := opened(t, engine(t, DockerOptions{Mechanisms: all.All(), noAgent: true}), "tdatano")
	_, _, err := inject(t, "kill", "data: lose", chaos.Scope{On: []chaos.Node{one}})
	if err == nil || !strings.Contains(err.Error(), "unavailable") || !one.Process.Running() {
		t.Errorf("%v, running %t", err, one.Process.Running())
	}
}
