package external

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

func made(t *testing.T, nodes int, text string) (setup, error) {
	t.Helper()
	p, err := scenarios.ParseParams("{" + text + "}")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newTopology(topology.Common{Nodes: nodes, TTL: 2 * time.Second}, p.Decode)
	if err != nil {
		return setup{}, err
	}
	return s.(setup), nil
}

func TestServersAreStartedAsTheScenarioSays(t *testing.T) {
	t.Parallel()
	s, err := made(t, 2, `start: {image: 'my:1', ports: {client: 7000, peer: 7001}, env: {B: "2", A: "1"},
		command: [my-server, '--at={client}', '--bind={listen}:{peer.port}', '--peers={service-1.peer},{service-2.peer}', '{dir}/x', '{host}']}`)
	if err != nil {
		t.Fatal(err)
	}
	specs := s.Specs()
	if len(specs) != 2 || specs[1].Name != "service-2" || specs[1].Image != "my:1" || !specs[1].Named || !slices.Equal(specs[1].Env, []string{"A=1", "B=2"}) {
		t.Fatalf("%+v", specs)
	}
	place := node.NewPlace()
	for i, host := range []string{"10.0.0.1", "10.0.0.2"} {
		place.Put(name(i), host)
		place.Open(name(i), "client", "7000")
		place.Open(name(i), "peer", "7001")
	}
	got := strings.Join(specs[1].Command(place.Of("service-2", "/data")), " ")
	if want := "my-server --at=10.0.0.2:7000 --bind=0.0.0.0:7001 --peers=10.0.0.1:7001,10.0.0.2:7001 /data/x 10.0.0.2"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestDeclaredTraits(t *testing.T) {
	t.Parallel()
	s, err := made(t, 0, "token: service, expires: true, recovery: 3s, min_ttl: 100ms")
	if err != nil {
		t.Fatal(err)
	}
	l := s.Declare(Backend().Locks[0])
	if l.Offers.Token != backends.TokenService || !l.Offers.Expires || l.Bound(time.Second, nil) != 3*time.Second || l.MinTTL != 100*time.Millisecond {
		t.Errorf("%+v", l)
	}
	if s, err = made(t, 0, "expires: false"); err != nil || s.Declare(Backend().Locks[0]).Bound(time.Second, nil) != 0 {
		t.Errorf("a lock that does not expire has a bound: %v", err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"token: yes-please":                         `token is "yes-please"; it must be none, service, home-made`,
		"start: {image: x}":                         "start.command is missing",
		"start: {command: [x]}":                     "start.ports is missing",
		"start: {command: [x], ports: {client: 0}}": "start.ports.client is 0; want 1 to 65535",
		"start: {command: [x], ports: {client: 1}, ready: {port: http}}":        `start.ready.port is "http"`,
		"start: {command: [x], ports: {client: 1}}, endpoints: ['127.0.0.1:1']": "give start or endpoints, not both",
		"recovery: 3": "recovery",
		"starts: {}":  "starts",
	} {
		if _, err := made(t, 0, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := made(t, 3, ""); err == nil || !strings.Contains(err.Error(), "nodes is 3; without start") {
		t.Errorf("nodes without start: %v", err)
	}
}

// answering is a server that answers each line with the same text.
func answering(t *testing.T, text string) string {
	t.Helper()
	return conformance.Listen(t, func(c net.Conn) {
		if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			_, _ = c.Write([]byte(text))
		}
	})
}

func TestWhetherAServerServes(t *testing.T) {
	t.Parallel()
	const ready = "start: {command: [x], ports: {client: 1}, ready: {send: \"PING\\n\", expect: PONG}}"
	for _, c := range []struct {
		text, address string
		serves        string
	}{
		{ready, answering(t, "+PONG\r\n"), "true"},
		{ready, answering(t, "-LOADING\r\n"), "false"},
		{"", answering(t, ""), "true"},
		{"", "127.0.0.1:1", "false"},
	} {
		s, err := made(t, 0, c.text)
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := cluster.Attach([]node.Spec{{Name: "service-1", Role: node.Server, Ports: s.ports}}, []cluster.Endpoint{{Port: clientPort, Address: c.address}})
		if err != nil {
			t.Fatal(err)
		}
		v := s.Service(cluster.Handles(nodes))
		got, err := v.Ask(t.Context(), "service-1", "serves")
		if ready := v.Ready(t.Context()) == nil; err != nil || got != c.serves || ready != (c.serves == "true") {
			t.Errorf("%s at %s: %s, %v, ready %v", c.text, c.address, got, err, ready)
		}
	}
	s, _ := made(t, 0, "")
	if _, err := s.Service(nil).Ask(t.Context(), "service-1", "weather"); err == nil {
		t.Error("a fact that is not known was answered")
	}
}
