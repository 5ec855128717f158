package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ciStubs replace the programs that .ci/run calls. The Docker daemon answers once a file exists.
var ciStubs = map[string]string{
	"bin/make":   `echo "make $1" >>called`,
	"bin/id":     `echo "${CI_TEST_UID:-0}"`,
	"bin/docker": `[ -e up ] && echo 1 || { echo "Cannot connect to the Docker daemon" >&2; exit 1; }`,
}

// TestCIStartsTheDaemon runs .ci/run with stubs for everything it calls. As root only, it starts a daemon that does
// not answer. It leaves a daemon that answers alone, and says why there is none if it cannot start one.
func TestCIStartsTheDaemon(t *testing.T) {
	t.Parallel()
	const service, dockerd = `echo "service $*" >>called; `, `echo dockerd >>called; `
	for name, c := range map[string]struct {
		stubs  map[string]string
		uid    string
		called string
		code   int
		says   []string // each on one line
	}{
		"it answers":     {map[string]string{"up": ""}, "0", "make lint, make test", 0, nil},
		"as a service":   {map[string]string{"bin/service": service + "touch up"}, "0", "service docker start, make lint, make test", 0, []string{"ci: docker did not answer; `service docker start` has started its daemon"}},
		"by itself":      {map[string]string{"bin/service": service + "exit 1", "bin/dockerd": dockerd + "touch up"}, "0", "service docker start, dockerd, make lint, make test", 0, []string{"dockerd runs in the background now"}},
		"a dead service": {map[string]string{"bin/service": service, "bin/dockerd": dockerd + "touch up"}, "0", "service docker start, dockerd, make lint, make test", 0, []string{"dockerd runs in the background now"}},
		"never": {
			map[string]string{"bin/service": service + "exit 1", "bin/dockerd": dockerd + "echo no such cgroup >&2; exit 1"},
			"0",
			"service docker start, dockerd, make lint, make test", 1,
			[]string{"ci: engine: docker does not answer: Cannot connect to the Docker daemon", "its daemon could not be started within 2 s", "no such cgroup"},
		},
		"no root": {map[string]string{"bin/service": service + "touch up"}, "1000", "make lint, make test", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := ciTree(t, c.stubs)
			cmd := exec.Command("bash", filepath.Join(dir, ".ci/run"))
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":/usr/bin:/bin", "LOCKQUAKE_DAEMON_WAIT=1", "CI_TEST_UID="+c.uid)
			said, _ := cmd.CombinedOutput()
			called, err := os.ReadFile(filepath.Join(dir, "called"))
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			if got := strings.ReplaceAll(strings.TrimSpace(string(called)), "\n", ", "); got != c.called || cmd.ProcessState.ExitCode() != c.code {
				t.Errorf("exit code %d, want %d; it called %s, want %s\n%s", cmd.ProcessState.ExitCode(), c.code, got, c.called, said)
			}
			for _, want := range c.says {
				if !strings.Contains(string(said), want) {
					t.Errorf("it does not say %q:\n%s", want, said)
				}
			}
			if c.says == nil && strings.Contains(string(said), "ci: ") {
				t.Errorf("it tells of a daemon:\n%s", said)
			}
		})
	}
}

// ciTree makes a directory with .ci and stubs.
func ciTree(t *testing.T, stubs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	for _, name := range []string{".ci/run", ".ci/engine"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	for _, some := range []map[string]string{ciStubs, stubs} {
		for name, text := range some {
			files[name] = "#!/bin/bash\n" + text + "\n"
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
