//go:build integration

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster/netspace"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

func init() {
	tablesAt = func(pid int) ([]string, error) {
		space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			return nil, err
		}
		defer func() { _ = space.Close() }()
		c, err := nftables.New(nftables.WithNetNSFd(int(space.Fd())))
		if err != nil {
			return nil, err
		}
		tables, err := c.ListTables()
		if err != nil {
			return nil, err
		}
		var out []string
		for _, table := range tables {
			if strings.HasPrefix(table.Name, "lockquake_") {
				out = append(out, table.Name)
			}
		}
		return out, nil
	}
	engineLeft = func(t testing.TB, run string) {
		t.Helper()
		d, err := newDocker(DockerOptions{Mechanisms: all.All()})
		if err != nil {
			t.Logf("no engine to look at: %v", err)
			return
		}
		of := make(client.Filters).Add("label", owner.Label+"run="+run)
		if run == "probe" || run == "preload" { // other programs have such processes too
			of = of.Add("label", owner.Label+"supervisor-pid="+strconv.Itoa(os.Getpid()))
		}
		boxes, err := d.api.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: of})
		if err != nil || len(boxes.Items) > 0 {
			t.Errorf("%d containers are left, %v", len(boxes.Items), err)
		}
		nets, err := d.api.NetworkList(context.Background(), client.NetworkListOptions{Filters: of})
		if err != nil || len(nets.Items) > 0 {
			t.Errorf("%d networks are left, %v", len(nets.Items), err)
		}
	}
}

// nodeBinary builds the test node as a static program, once.
var nodeBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lockquake-testnode-")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "node")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/node")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func staticNode(t testing.TB) string {
	t.Helper()
	path, err := nodeBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func engine(t testing.TB, o DockerOptions) *docker {
	t.Helper()
	o.Self = staticNode(t)
	d, err := newDocker(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func needRoot(t testing.TB) {
	t.Helper()
	if err := netspace.Probe(); err != nil {
		t.Skip(err)
	}
}

func TestDocker(t *testing.T) {
	t.Parallel()
	behaves(t, engine(t, DockerOptions{Mechanisms: all.All()}), "tdocker")
}

func TestDockerWithoutAgent(t *testing.T) {
	t.Parallel()
	behaves(t, engine(t, DockerOptions{Mechanisms: all.All(), noAgent: true}), "tdocknoag")
}

func TestDockerByPublishedPorts(t *testing.T) {
	t.Parallel()
	behaves(t, engine(t, DockerOptions{Mechanisms: all.All(), published: true}), "tdockpub")
}

// TestEngineFreezes runs alone: beside other tests runc sometimes gives up a freeze after its 1000 tries.
func TestEngineFreezes(t *testing.T) {
	for run, o := range map[string]DockerOptions{"tfreeze": {}, "tfreezeno": {noAgent: true, published: true}} {
		t.Run(run, func(t *testing.T) {
			o.Mechanisms = all.All()
			_, one, two, _ := opened(t, engine(t, o), run)
			freezes(t, one)
			restarts(t, one)
			if _, err := two.Signals.Pause(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := two.Signals.Freeze(t.Context()); err != nil { // it is closed while frozen
				t.Fatal(err)
			}
		})
	}
}

func TestLocalInNamespaces(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	r := request(t, "tnsaddr")
	c, err := p.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Describe["network"]; !strings.HasPrefix(got, "namespaces") {
		t.Errorf("the network is %q", got)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	behaves(t, p, "tns")
}

func TestTwoRunsSideBySide(t *testing.T) {
	needRoot(t)
	t.Parallel()
	p, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"tside1", "tside2"} {
		c, err := p.Open(t.Context(), request(t, run))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
			nothingLeft(t, run)
		}()
		startAll(t, c)
		serves(t, c.Node("echo-1"), "start 1")
	}
}

func TestNoEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	cmd := exec.Command(testBinary(t), "-test.run=^TestNoEngineHelper$", "-test.v")
	cmd.Env = append(os.Environ(), "LOCKQUAKE_TEST_NO_ENGINE=1", "TMPDIR="+t.TempDir()) // it sweeps no other test's directories
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNoEngineHelper runs in a process of its own, because testcontainers looks for the engine once.
func TestNoEngineHelper(t *testing.T) {
	if os.Getenv("LOCKQUAKE_TEST_NO_ENGINE") == "" {
		t.Skip("the helper of TestNoEngine")
	}
	_, _, err := Choose(t.Context(), "docker", ChooseOptions{})
	if !errors.As(err, new(chaos.Unavailable)) || !strings.Contains(err.Error(), "--provider local") {
		t.Errorf("docker without engine: %v", err)
	}
	p, reason, err := Choose(t.Context(), "auto", ChooseOptions{})
	if err != nil || p.Name() != "local" || !strings.Contains(reason, "no container engine") {
		t.Errorf("auto without engine: %v, %q, %v", p, reason, err)
	}
	if _, err := Sweep(t.Context(), SweepOptions{Mechanisms: all.All()}); err != nil {
		t.Errorf("sweep without engine: %v", err)
	}
}

func TestChoose(t *testing.T) {
	t.Setenv("LOCKQUAKE_BIN", staticNode(t))
	for want, name := range map[string]string{"auto": "docker", "docker": "docker", "local": "local", "": "docker"} {
		p, reason, err := Choose(t.Context(), want, ChooseOptions{})
		if err != nil || p.Name() != name || reason == "" {
			t.Errorf("%q: %v, %q, %v", want, p, reason, err)
		}
	}
	if _, _, err := Choose(t.Context(), "podman", ChooseOptions{}); err == nil {
		t.Error("an unknown provider was taken")
	}
	p, reason, err := Choose(t.Context(), "auto", ChooseOptions{Self: "/bin/sh"})
	if err != nil || p.Name() != "local" || !strings.Contains(reason, "CGO_ENABLED=0") {
		t.Errorf("a dynamic binary: %v, %q, %v", p, reason, err)
	}
}

func TestProbe(t *testing.T) {
	t.Setenv("LOCKQUAKE_BIN", staticNode(t))
	seen := map[string]bool{}
	for _, r := range Probe(t.Context(), all.All()) {
		t.Logf("%-20s %-5t %s", r.Name, r.Available, r.Reason)
		seen[r.Name] = r.Available
		if r.Reason == "" || strings.Contains(r.Reason, "\n") {
			t.Errorf("%s has the reason %q", r.Name, r.Reason)
		}
	}
	for _, name := range []string{"engine", "agent", "static-binary"} {
		if !seen[name] {
			t.Errorf("%s is not available here", name)
		}
	}
	nothingLeft(t, fmt.Sprintf("p%x", os.Getpid()))
	nothingLeft(t, "probe")
}

func TestAloneKilledSupervisorInNamespaces(t *testing.T) {
	needRoot(t)
	for name, withAgent := range map[string]bool{"alone": false, "with its agent": true} {
		t.Run(name, func(t *testing.T) { orphans(t, "namespaces", "tkillns", withAgent) })
	}
}

// others checks that only networks of other tests, which the engine calls active, caused errors of a sweep: those tests
// check them themselves.
func others(t *testing.T, run string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		if !strings.Contains(line, "remove network ") || !strings.Contains(line, "has active endpoints") || strings.Contains(line, "lockquake-"+run) {
			t.Error(line)
			continue
		}
		t.Logf("left by another: %s", line)
	}
}

func TestAloneKilledSupervisorOfContainers(t *testing.T) {
	needRoot(t) // the test looks at the engine's processes in this machine's /proc
	for provider, run := range map[string]string{"docker": "tkilldock", "docker-without-agent": "tkillnoag"} {
		t.Run(provider, func(t *testing.T) {
			d := engine(t, DockerOptions{Mechanisms: all.All()})
			orders := abandon(t, provider, run, staticNode(t), false, func() {
				var s Swept
				others(t, run, s.engine(t.Context(), d, SweepOptions{Mechanisms: all.All()}))
				if strings.Contains(strings.Join(append(s.Containers, s.Networks...), " "), run) {
					t.Errorf("a running supervisor's things were swept: %+v", s)
				}
			})
			for _, s := range orders {
				if provider == "docker" && s.kind != "power" { // a disk goes with its container
					undone(t, s)
				}
			}
			swept, err := Sweep(t.Context(), SweepOptions{Mechanisms: all.All()})
			others(t, run, err)
			t.Logf("swept %v", swept)
			names := strings.Join(append(swept.Containers, swept.Networks...), " ")
			if !strings.Contains(names, "lockquake-"+run+"-echo-signal") || !strings.Contains(names, "lockquake-"+run) {
				t.Errorf("swept: %+v", swept)
			}
			for _, s := range orders {
				if s.kind == "power" {
					undone(t, s)
				}
				gone(t, s.process)
			}
			nothingLeft(t, run)
			again, err := Sweep(t.Context(), SweepOptions{Mechanisms: all.All()})
			others(t, run, err)
			if strings.Contains(fmt.Sprint(again.Containers, again.Networks), run) {
				t.Errorf("swept twice: %+v", again)
			}
		})
	}
}
