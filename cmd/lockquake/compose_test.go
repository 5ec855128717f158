package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/images"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

func TestComposeSaysWhatTheBackendsSay(t *testing.T) {
	want, err := composeFile(servedBackends()...)
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

// TestComposePublishesOnLoopback wants each server behind a port of its own that only this machine reaches, told in the header.
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
	if len(seen) < len(servedBackends()) {
		t.Errorf("only %d servers are published", len(seen))
	}
}

// TestEveryBackendHasAProfile: each backend with servers has a number of its own, which gives it addresses and ports.
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
		if number < 1 || number > mostProfiles {
			t.Errorf("topology.Maker.Profile of %s is %d, want 1 to %d", name, number, mostProfiles)
		}
	}
	if t.Failed() {
		t.Logf("%d is free", free)
	}
	ports := map[int]string{}
	for profile := range mostProfiles + 1 {
		for i := range portsEach {
			port := byHand{profile: profile}.published(i)
			if other := ports[port]; other != "" || port < 20001 || port > 20999 {
				t.Errorf("profile %d has port %d, which is out of range, or that of profile %s", profile, port, other)
			}
			ports[port] = strconv.Itoa(profile)
		}
	}
}

// TestEveryBackendHasItsImageScenarioAndDocs names what a service needs beside its folder.
func TestEveryBackendHasItsImageScenarioAndDocs(t *testing.T) {
	t.Parallel()
	docs := map[string]string{}
	for _, name := range []string{"README.md", "docs/commands.md"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		docs[name] = string(text)
	}
	for _, name := range servedBackends() {
		p, err := newByHand(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, s := range p.specs {
			if s.Image != node.SelfProgram && !slices.Contains(images.Names(), s.Image) {
				t.Errorf("%s of %s runs in the image %q, and images/ has no folder of that name", s.Name, name, s.Image)
			}
		}
		if _, err := scenarios.Load(name + "-healthy"); err != nil {
			t.Errorf("scenarios/healthy/%s-healthy.yaml: %v", name, err)
		}
		for doc, text := range docs {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("%s does not name the backend `%s`", doc, name)
			}
		}
	}
}

// composeYAML is what the tests read of docker-compose.yml.
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

// composed reads docker-compose.yml as compose does with that .env.
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

// TestComposeMoves: .env moves every address and port, in command lines and for the program that asks the nodes. There is one network.
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
		if strings.HasSuffix(s.Image, "node:latest") && !slices.Contains(s.Environment, composeNetIn+"=10.99") {
			t.Errorf("%s does not know where the network is: %v", name, s.Environment)
		}
		for i, port := range s.Ports {
			if want := strings.Replace(was.Ports[i], "127.0.0.1:20", "127.0.0.1:31", 1); port != want {
				t.Errorf("%s is behind %s, want %s", name, port, want)
			}
		}
	}
	p, err := newByHandIn("etcd", "10.99")
	if err != nil || p.nodes[0].Host() != moved.Services["etcd-1"].Networks["default"].Address {
		t.Errorf("the program asks %s of %+v: %v", p.nodes[0].Host(), moved.Services["etcd-1"], err)
	}
	if _, err := newByHandIn("etcd", "10"); cli.ExitCode(err) != cli.CodeUsage {
		t.Errorf("a network that is none: %v", err)
	}
}

// TestDemoMakesTheImagesOfCompose runs the demo with everything that it calls replaced by what writes down how it was called.
func TestDemoMakesTheImagesOfCompose(t *testing.T) {
	dir := t.TempDir()
	demo, err := os.ReadFile("../../.ci/demo")
	if err != nil {
		t.Fatal(err)
	}
	note := "#!/bin/sh\necho \"$0 $*\" >>called\n"
	for name, text := range map[string]string{".ci/demo": string(demo), ".ci/engine": note, "build/lockquake": note} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	said, err := exec.Command("bash", filepath.Join(dir, ".ci/demo"), "docker").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	called, err := os.ReadFile(filepath.Join(dir, "called"))
	if err != nil {
		t.Fatal(err)
	}
	if made, run := strings.Index(string(called), "lockquake images"), strings.Index(string(called), "lockquake run"); made < 0 || run < made {
		t.Errorf("it does not make lockquake-node:latest:\n%s", called)
	}
}

func TestNetworksOfComposeDoNotMeet(t *testing.T) {
	seen := map[string]string{}
	for _, name := range servedBackends() {
		p, err := newByHand(name)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[p.network.String()]; other != "" {
			t.Errorf("%s and %s have the same network %v", name, other, p.network)
		}
		seen[p.network.String()] = name
	}
}
