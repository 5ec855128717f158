package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
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
	var file struct {
		Services map[string]struct{ Ports []string }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
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
