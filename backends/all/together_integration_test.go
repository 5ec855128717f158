//go:build integration

package all

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	mechanisms "github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster"
)

// roomForAll bounds the memory of all topologies together.
const roomForAll = 6 << 30

// Every topology at once, in containers, fits into a small machine.
func TestAllTopologiesTogether(t *testing.T) {
	if os.Getenv("LOCKQUAKE_TEST_ALL") == "" {
		t.Skip("left to make test-all: each topology serves in the tests of its own package")
	}
	p, err := cluster.NewDocker(cluster.DockerOptions{Mechanisms: mechanisms.All()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	begun := time.Now()
	var runs []string
	g, gctx := errgroup.WithContext(ctx)
	for i, b := range All() {
		if b.InProcess {
			continue
		}
		run := fmt.Sprintf("all%x%d", os.Getpid()%0xffff, i)
		runs = append(runs, run)
		dir := t.TempDir()
		g.Go(func() error {
			c, err := up(gctx, p, b, cluster.Request{Run: run, LogDir: dir})
			if c != nil {
				t.Cleanup(func() {
					if err := c.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
			if err != nil {
				return fmt.Errorf("%s: %w", b.Name, err)
			}
			t.Logf("%s: %d nodes, serving %v after the common start", b.Name, len(c.Nodes), time.Since(begun).Round(10*time.Millisecond))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	boxes, inside, shims := taken(t, runs)
	t.Logf("%d topologies, %d containers: %d MiB in the containers (their control groups' usage without inactive file pages, as docker "+
		"stats counts), %d MiB in their shims (resident), %d MiB together", len(runs), boxes, inside>>20, shims>>20, (inside+shims)>>20)
	if inside == 0 || shims == 0 {
		t.Error("nothing was measured; is the engine another machine's?")
	}
	if inside+shims > roomForAll {
		t.Errorf("that is more than %d MiB", int64(roomForAll)>>20)
	}
}

// up starts one topology and returns when it serves.
func up(ctx context.Context, p cluster.Provider, b listed.Backend, r cluster.Request) (*cluster.Cluster, error) {
	top, err := b.New(topology.Common{TTL: 10 * time.Second, Lock: b.Locks[0].Name}, func(any) error { return nil })
	if err != nil {
		return nil, err
	}
	r.Specs = top.Specs()
	c, err := p.Open(ctx, r)
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	for _, n := range c.Nodes {
		g.Go(func() error { return n.Process.Start(ctx) })
	}
	if err := g.Wait(); err != nil {
		return c, err
	}
	service := top.Service(cluster.Handles(c.Nodes))
	defer func() { _ = service.Close() }()
	for {
		err := service.Ready(ctx)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return c, fmt.Errorf("it does not serve: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// taken sums the memory of the containers of runs, and of their shim processes.
func taken(t *testing.T, runs []string) (boxes int, inside, shims int64) {
	t.Helper()
	api, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	for _, run := range runs {
		of := make(client.Filters).Add("label", "org.lockquake.run="+run)
		list, err := api.ContainerList(t.Context(), client.ContainerListOptions{Filters: of})
		if err != nil {
			t.Fatal(err)
		}
		for _, box := range list.Items {
			boxes++
			inside += used(t, api, box.ID)
			shims += shimOf(t, box.ID)
		}
	}
	return boxes, inside, shims
}

// used returns the memory of one container as docker stats counts it.
func used(t *testing.T, api *client.Client, id string) int64 {
	t.Helper()
	answer, err := api.ContainerStats(t.Context(), id, client.ContainerStatsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var s container.StatsResponse
	if err := json.NewDecoder(answer.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	idle, ok := s.MemoryStats.Stats["total_inactive_file"] // control groups of version 1
	if !ok {
		idle = s.MemoryStats.Stats["inactive_file"]
	}
	return int64(s.MemoryStats.Usage - min(idle, s.MemoryStats.Usage))
}

// shimOf returns the resident memory of a container's shim process, which it finds by its command line.
func shimOf(t *testing.T, id string) int64 {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		argv, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(argv, []byte("containerd-shim")) || !bytes.Contains(argv, []byte(id)) {
			continue
		}
		statm, err := os.ReadFile(filepath.Join(filepath.Dir(path), "statm"))
		if f := strings.Fields(string(statm)); err == nil && len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			return pages * int64(os.Getpagesize())
		}
	}
	return 0
}
