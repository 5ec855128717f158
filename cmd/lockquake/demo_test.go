package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/images"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

// TestEveryBackendHasItsImageScenarioAndDocs checks what a service needs besides its directory.
func TestEveryBackendHasItsImageScenarioAndDocs(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, name := range []string{"README.md", "docs/commands.md", ".ci/setup", "Makefile"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	for _, name := range compose.Backends() {
		p, err := compose.New(name)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, s := range p.Specs {
			if s.Image != node.SelfProgram && !slices.Contains(images.Names(), s.Image) {
				t.Errorf("%s of %s runs in the image %q, and images/ has no folder of that name", s.Name, name, s.Image)
			}
			if s.Image != node.SelfProgram && !strings.Contains(files[".ci/setup"], "\n    "+s.Image+")") {
				t.Errorf(".ci/setup has no word %q, by which the provider local gets the server of %s", s.Image, name)
			}
			if s.Image != node.SelfProgram && !regexp.MustCompile(`(?m)^\t@\.ci/setup .*\b`+s.Image+`\b`).MatchString(files["Makefile"]) {
				t.Errorf("the target setup of the Makefile does not give .ci/setup the word %q", s.Image)
			}
		}
		if _, err := scenarios.Load(name + "-healthy"); err != nil {
			t.Errorf("scenarios/healthy/%s-healthy.yaml: %v", name, err)
		}
		for _, doc := range []string{"README.md", "docs/commands.md"} {
			if !strings.Contains(files[doc], "`"+name+"`") {
				t.Errorf("%s does not name the backend `%s`", doc, name)
			}
		}
	}
}

// TestDemoMakesTheImagesOfCompose runs the demo with stubs that record how they were called.
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
