//go:build integration

package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/lockquake/lockquake/chaos"
)

func init() {
	engineLeft = func(t testing.TB, run string) {
		t.Helper()
		d, err := newDocker(DockerOptions{})
		if err != nil {
			t.Logf("no engine to look at: %v", err)
			return
		}
		of := make(client.Filters).Add("label", label+"run="+run)
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
	if err := probeNamespaces(); err != nil {
		t.Skip(err)
	}
}

func TestDocker(t *testing.T) { behaves(t, engine(t, DockerOptions{}), "tdocker") }

func TestDockerWithoutAgent(t *testing.T) {
	behaves(t, engine(t, DockerOptions{noAgent: true}), "tdocknoag")
}

func TestDockerByPublishedPorts(t *testing.T) {
	behaves(t, engine(t, DockerOptions{published: true}), "tdockpub")
}

func TestLocalInNamespaces(t *testing.T) {
	needRoot(t)
	p, err := NewLocal(LocalOptions{Self: testBinary(t)})
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
	p, err := NewLocal(LocalOptions{Self: testBinary(t)})
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

// redisSpec is Debian's Redis, by its usual command.
func redisSpec(name string) Spec {
	return Spec{
		Name: name, Role: Server, Image: "redis", Restartable: true, Ports: []Port{{Name: "client", Number: 6379}},
		Command: func(p Place) []string {
			host, port, _ := strings.Cut(p.Address(p.Self, "client"), ":")
			return []string{"redis-server", "--bind", host, "--port", port, "--dir", p.Dir, "--save", "", "--protected-mode", "no"}
		},
	}
}

func ping(ctx context.Context, n *Node) (string, error) {
	conn, err := n.Dial(ctx, "client")
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := fmt.Fprint(conn, "PING\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func pong(t testing.TB, n *Node) {
	t.Helper()
	var err error
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var got string
		if got, err = ping(t.Context(), n); got == "+PONG" {
			return
		}
	}
	t.Fatalf("%s does not answer PING: %v", n.Name(), err)
}

func TestRedisIsProcessOne(t *testing.T) {
	providers := []Provider{engine(t, DockerOptions{})}
	if _, err := exec.LookPath("redis-server"); err == nil {
		l, err := NewLocal(LocalOptions{Self: testBinary(t)})
		if err != nil {
			t.Fatal(err)
		}
		providers = append(providers, l)
	}
	for _, p := range providers {
		t.Run(p.Name(), func(t *testing.T) {
			r := request(t, "tredis")
			r.Specs = []Spec{redisSpec("redis-1")}
			c, err := p.Open(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
				nothingLeft(t, "tredis")
			}()
			startAll(t, c)
			n := c.Nodes[0]
			pong(t, n)
			state, err := n.Pause(t.Context())
			if err != nil || state.Threads["T"] < 4 { // redis-server has its background threads
				t.Errorf("paused: %v, %v", state, err)
			}
			if got, err := ping(t.Context(), n); err == nil {
				t.Errorf("a paused Redis answers %q", got)
			}
			begin := time.Now()
			if _, err := n.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			pong(t, n)
			t.Logf("killed while paused, started again and serving in %v", time.Since(begin))
		})
	}
}

func TestStartUpIsParallel(t *testing.T) {
	d := engine(t, DockerOptions{})
	const nodes = 5
	r := request(t, "tpar")
	r.Specs, r.Agent = nil, false
	for i := range nodes {
		r.Specs = append(r.Specs, redisSpec(fmt.Sprintf("redis-%d", i+1)))
	}
	begin := time.Now()
	c, err := d.Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Since(begin)
	defer func() { _ = c.Close(context.Background()) }()
	// The engine's own share: the same containers, started one after another, then all at once.
	begin = time.Now()
	for _, n := range c.Nodes {
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	serial := time.Since(begin)
	for _, n := range c.Nodes {
		pong(t, n)
		if _, err := n.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	parallel := startAll(t, c)
	for _, n := range c.Nodes {
		pong(t, n)
	}
	begin = time.Now()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d containers: opened in %v, started one after another in %v (%v each), at once in %v, closed in %v",
		nodes, opened, serial, serial/nodes, parallel, time.Since(begin))
	if parallel > serial {
		t.Errorf("at once takes %v, one after another %v", parallel, serial)
	}
	nothingLeft(t, "tpar")
}

func TestMissingImages(t *testing.T) {
	d := engine(t, DockerOptions{})
	for what, c := range map[string]struct {
		image  string
		images map[string]string
		want   string
	}{
		"the project's own": {"nosuch", nil, "make images"},
		"the user's":        {"redis", map[string]string{"redis": "localhost:1/lockquake-nosuch:1"}, "cannot pull"},
		"a key of no node":  {"redis", map[string]string{"postgres": "postgres:17"}, "no node"},
	} {
		r := request(t, "timage")
		s := redisSpec("redis-1")
		s.Image = c.image
		r.Specs, r.Images, r.Agent = []Spec{s}, c.images, false
		cl, err := d.Open(t.Context(), r)
		if err == nil {
			_ = cl.Close(context.Background())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	nothingLeft(t, "timage")
}

func TestImageOfTheUser(t *testing.T) {
	r := request(t, "tuserimg")
	r.Specs, r.Images = []Spec{redisSpec("redis-1")}, map[string]string{"redis": projectImage("redis")}
	c, err := engine(t, DockerOptions{}).Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	startAll(t, c)
	pong(t, c.Nodes[0])
}

func TestNoEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
	cmd := exec.Command(testBinary(t), "-test.run=^TestNoEngineHelper$", "-test.v")
	cmd.Env = append(os.Environ(), "LOCKQUAKE_TEST_NO_ENGINE=1")
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
	if _, err := Sweep(t.Context(), SweepOptions{}); err != nil {
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
	for _, r := range Probe(t.Context()) {
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

func TestKilledSupervisorInNamespaces(t *testing.T) {
	needRoot(t)
	orphans(t, "namespaces", "tkillns")
}

func TestKilledSupervisorOfContainers(t *testing.T) {
	needRoot(t) // the test looks at the engine's processes in this machine's /proc
	for provider, run := range map[string]string{"docker": "tkilldock", "docker-without-agent": "tkillnoag"} {
		t.Run(provider, func(t *testing.T) {
			d := engine(t, DockerOptions{})
			paused := abandon(t, provider, run, staticNode(t), func() {
				var s Swept
				if err := s.engine(t.Context(), d, SweepOptions{}); err != nil {
					t.Error(err)
				}
				if strings.Contains(strings.Join(append(s.Containers, s.Networks...), " "), run) {
					t.Errorf("a running supervisor's things were swept: %+v", s)
				}
			})
			if provider == "docker" {
				for _, p := range paused {
					goesOn(t, p)
				}
			}
			swept, err := Sweep(t.Context(), SweepOptions{})
			if err != nil {
				t.Error(err)
			}
			t.Logf("swept %v", swept)
			names := strings.Join(append(swept.Containers, swept.Networks...), " ")
			if !strings.Contains(names, "lockquake-"+run+"-echo-1") || !strings.Contains(names, "lockquake-"+run) {
				t.Errorf("swept: %+v", swept)
			}
			for _, p := range paused {
				gone(t, p)
			}
			nothingLeft(t, run)
			if again, err := Sweep(t.Context(), SweepOptions{}); err != nil || strings.Contains(fmt.Sprint(again.Containers, again.Networks), run) {
				t.Errorf("swept twice: %+v, %v", again, err)
			}
		})
	}
}
