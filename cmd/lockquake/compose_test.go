package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/internal/cli"
)

func TestComposeMatchesTheBackends(t *testing.T) {
	want, err := compose.File(compose.Backends()...)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("docker-compose.yml is not what the backends say of their nodes; run make compose (-want +got):\n%s", d)
	}
}

// TestComposePublishesOnLoopback: each server has a port of its own that only this machine can reach, and the header
// lists it.
func TestComposePublishesOnLoopback(t *testing.T) {
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := composed(t, text, nil)
	head, _, _ := strings.Cut(string(text), "services:")
	seen := map[string]string{}
	for name, s := range file.Services {
		if strings.HasSuffix(name, "-ready") {
			continue
		}
		if len(s.Ports) != 1 {
			t.Errorf("%s publishes %q", name, s.Ports)
			continue
		}
		host, inside, ok := strings.Cut(strings.TrimPrefix(s.Ports[0], "127.0.0.1:"), ":")
		if !ok || !strings.HasPrefix(s.Ports[0], "127.0.0.1:") || inside == "" {
			t.Errorf("%s publishes %q, which is not of the form 127.0.0.1:PORT:PORT", name, s.Ports[0])
		}
		if other := seen[host]; other != "" {
			t.Errorf("%s and %s are both behind port %s", name, other, host)
		}
		seen[host] = name
		if !strings.Contains(head, "#   "+host+"  "+name+"\n") {
			t.Errorf("the header does not say that %s is behind port %s", name, host)
		}
	}
	if len(seen) < len(compose.Backends()) {
		t.Errorf("only %d servers are published", len(seen))
	}
}

// TestEveryBackendHasAProfile: each backend with servers has its own number, which determines its addresses and ports.
func TestEveryBackendHasAProfile(t *testing.T) {
	t.Parallel()
	used := map[int]string{}
	for _, b := range all.All() {
		if !b.InProcess {
			if other := used[b.Profile]; other != "" {
				t.Errorf("topology.Maker.Profile is %d in %s and in %s", b.Profile, other, b.Name)
			}
			used[b.Profile] = b.Name
		}
	}
	free := 1
	for used[free] != "" {
		free++
	}
	for number, name := range used {
		if number < 1 || number > compose.MostProfiles {
			t.Errorf("topology.Maker.Profile of %s is %d, want 1 to %d", name, number, compose.MostProfiles)
		}
	}
	if t.Failed() {
		t.Logf("%d is free", free)
	}
	ports := map[int]string{}
	for profile := range compose.MostProfiles + 1 {
		for i := range compose.PortsEach {
			port := compose.ByHand{Profile: profile}.Published(i)
			if other := ports[port]; other != "" || port < 20001 || port > 20999 {
				t.Errorf("profile %d has port %d, which is out of range, or that of profile %s", profile, port, other)
			}
			ports[port] = strconv.Itoa(profile)
		}
	}
}

// composeYAML holds the parts of docker-compose.yml that the tests read.
type composeYAML struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Environment []string
		Ports       []string
		Networks    map[string]struct {
			Address string `yaml:"ipv4_address"`
		}
	}
	Networks map[string]struct {
		IPAM struct{ Config []struct{ Subnet string } }
	}
}

// composed parses docker-compose.yml as compose does with these variables in .env.
func composed(t *testing.T, text []byte, env map[string]string) (file composeYAML) {
	t.Helper()
	set := os.Expand(string(text), func(name string) string {
		name, usual, _ := strings.Cut(name, ":-")
		if v, ok := env[name]; ok {
			return v
		}
		if name == "$" {
			return "$"
		}
		return usual
	})
	if err := yaml.Unmarshal([]byte(set), &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestComposeMoves: .env moves every address and port, also in command lines and for the program that asks the nodes.
// There is one network.
func TestComposeMoves(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	usual, moved := composed(t, text, nil), composed(t, text, map[string]string{"LOCKQUAKE_NET": "10.99", "LOCKQUAKE_PORTS": "31"})
	if n := moved.Networks["default"].IPAM.Config; len(moved.Networks) != 1 || len(n) != 1 || n[0].Subnet != "10.99.0.0/16" {
		t.Errorf("networks are %+v", moved.Networks)
	}
	for name, s := range moved.Services {
		was := usual.Services[name]
		if all := fmt.Sprintf("%+v", s); strings.Contains(all, "10.127") {
			t.Errorf("%s stays where it was: %s", name, all)
		}
		if back := strings.ReplaceAll(strings.Join(s.Command, " "), "10.99.", "10.127."); back != strings.Join(was.Command, " ") {
			t.Errorf("%s has another command line: %s", name, back)
		}
		if strings.HasSuffix(s.Image, "node:latest") && !slices.Contains(s.Environment, compose.NetVariable+"=10.99") {
			t.Errorf("%s does not know where the network is: %v", name, s.Environment)
		}
		for i, port := range s.Ports {
			if want := strings.Replace(was.Ports[i], "127.0.0.1:20", "127.0.0.1:31", 1); port != want {
				t.Errorf("%s is behind %s, want %s", name, port, want)
			}
		}
	}
	p, err := compose.NewIn("etcd", "10.99")
	if err != nil || p.Nodes[0].Host() != moved.Services["etcd-1"].Networks["default"].Address {
		t.Errorf("the program asks %s of %+v: %v", p.Nodes[0].Host(), moved.Services["etcd-1"], err)
	}
	if _, err := compose.NewIn("etcd", "10"); cli.ExitCode(err) != cli.CodeUsage {
		t.Errorf("a network that is none: %v", err)
	}
}

func TestNetworksOfComposeDoNotMeet(t *testing.T) {
	seen := map[string]string{}
	for _, name := range compose.Backends() {
		p, err := compose.New(name)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[p.Network.String()]; other != "" {
			t.Errorf("%s and %s have the same network %v", name, other, p.Network)
		}
		seen[p.Network.String()] = name
	}
}
