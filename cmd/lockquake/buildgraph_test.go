package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/all"
)

// TestBuildGraph checks indirect imports, which the linter cannot see. A client process must stay small, the run loop
// must not know any instance, and providers must not know any mechanism of the agent.
func TestBuildGraph(t *testing.T) {
	t.Parallel()
	const own = "github.com/lockquake/lockquake/"
	instances := []string{own + "workloads/resource/", own + "backends/all", own + "chaos/all", own + "chaos/service"}
	for _, b := range all.All() {
		instances = append(instances, own+"backends/"+all.Folder(b))
	}
	mechanisms := []string{"github.com/google/nftables", "github.com/florianl/"}
	for _, folder := range []string{"all", "clock", "disk", "links", "process", "ptrace"} {
		mechanisms = append(mechanisms, own+"internal/agent/"+folder)
	}
	engines := []string{
		own + "chaos", own + "internal/cluster", own + "internal/agent", "github.com/docker/", "github.com/moby/", "github.com/testcontainers/",
		"github.com/vishvananda/", "github.com/mdlayher/", "github.com/google/nftables", "github.com/florianl/",
	}
	for pkg, forbidden := range map[string][]string{
		"internal/agent":   mechanisms,
		"internal/cluster": mechanisms,
		"internal/engine":  instances,
		"internal/client":  slices.Concat(instances, engines, []string{own + "backends/"}),
		"backends/redis/locks": append(engines,
			own+"backends/listed", own+"backends/topology", own+"backends/redis/servers", own+"workloads"),
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", own+pkg).Output()
		if err != nil {
			t.Fatalf("go list %s: %v", pkg, err)
		}
		for linked := range strings.Lines(string(out)) {
			for _, prefix := range forbidden {
				if strings.HasPrefix(linked, prefix) {
					t.Errorf("%s links %s", pkg, strings.TrimSpace(linked))
				}
			}
		}
	}
}
