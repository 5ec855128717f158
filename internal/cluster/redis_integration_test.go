//go:build integration

package cluster

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/agent/all"
	"github.com/lockquake/lockquake/internal/cluster/imagestore"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/wait"
)

// redisSpec returns Debian's Redis with its usual command.
func redisSpec(name string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Server, Image: "redis", Restartable: true, Ports: []node.Port{{Name: "client", Number: 6379}},
		Command: func(p node.Place) []string {
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
	wait.Until(t, patience, n.Name()+" answers PING", func() bool { got, _ := ping(t.Context(), n); return got == "+PONG" })
}

func TestRedisIsProcessOne(t *testing.T) {
	t.Parallel()
	providers := []Provider{engine(t, DockerOptions{Mechanisms: all.All()})}
	if _, err := exec.LookPath("redis-server"); err == nil {
		l, err := NewLocal(LocalOptions{Mechanisms: all.All(), Self: testBinary(t)})
		if err != nil {
			t.Fatal(err)
		}
		providers = append(providers, l)
	}
	for _, p := range providers {
		t.Run(p.Name(), func(t *testing.T) {
			r := request(t, "tredis")
			r.Specs = []node.Spec{redisSpec("redis-1")}
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
			state, err := n.Signals.Pause(t.Context())
			if err != nil || state.Threads["T"] < 4 { // redis-server has its background threads
				t.Errorf("paused: %v, %v", state, err)
			}
			if got, err := ping(t.Context(), n); err == nil {
				t.Errorf("a paused Redis answers %q", got)
			}
			begin := time.Now()
			if _, err := n.Signals.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := n.Process.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			pong(t, n)
			t.Logf("killed while paused, started again and serving in %v", time.Since(begin))
		})
	}
}

// TestFiveStartAtOnce only checks that they serve. make bench measures how long that takes.
func TestFiveStartAtOnce(t *testing.T) {
	t.Parallel()
	r := request(t, "tpar")
	r.Specs, r.Agent = nil, false
	for i := range 5 {
		r.Specs = append(r.Specs, redisSpec(fmt.Sprintf("redis-%d", i+1)))
	}
	c, err := engine(t, DockerOptions{Mechanisms: all.All()}).Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	for range 2 { // the second time the containers are there
		t.Logf("started in %v", startAll(t, c))
		for _, n := range c.Nodes {
			pong(t, n)
			if _, err := n.Signals.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, "tpar")
}

func TestMissingImages(t *testing.T) {
	t.Parallel()
	d := engine(t, DockerOptions{Mechanisms: all.All()})
	for what, c := range map[string]struct {
		image  string
		images map[string]string
		want   string
	}{
		"the project's own": {"nosuch", nil, "lockquake images"},
		"the user's":        {"redis", map[string]string{"redis": "localhost:1/lockquake-nosuch:1"}, "cannot pull"},
		"a key of no node":  {"redis", map[string]string{"postgres": "postgres:17"}, "no node"},
	} {
		r := request(t, "timage")
		s := redisSpec("redis-1")
		s.Image = c.image
		r.Specs, r.Images, r.Agent = []node.Spec{s}, c.images, false
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
	t.Parallel()
	r := request(t, "tuserimg")
	r.Specs, r.Images = []node.Spec{redisSpec("redis-1")}, map[string]string{"redis": imagestore.Project("redis")}
	c, err := engine(t, DockerOptions{Mechanisms: all.All()}).Open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	startAll(t, c)
	pong(t, c.Nodes[0])
}
