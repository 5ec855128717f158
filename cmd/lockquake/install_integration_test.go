//go:build integration

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
)

// TestInstallWithoutACheckout follows the README on a machine that has only Go: `go install` from a module proxy, then
// runs in an empty directory. The proxy is a directory with this tree as the only version of the module. Required
// modules come from this machine's cache, compiled with -trimpath as in the Makefile, so that the test compiles only
// lockquake's own packages.
func TestInstallWithoutACheckout(t *testing.T) {
	leftToAll(t, "it compiles every module anew: two minutes of both cores")
	t.Parallel()
	const module, version = "github.com/lockquake/lockquake", "v0.999.0"
	proxy, bin, empty := t.TempDir(), t.TempDir(), t.TempDir()
	packModule(t, module, version, proxy)
	cache := strings.TrimSpace(command(t, "go", "env", "GOMODCACHE"))
	run := func(name string, args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = empty
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+bin, "GOMODCACHE="+filepath.Join(proxy, "modules"),
			"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"), "GOSUMDB=off",
			"GOPRIVATE=", "GONOPROXY=", "GOWORK=off", "GOFLAGS=-trimpath -modcacherw",
			"LOCKQUAKE_BIN=") // the installed program starts itself as client and node
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := run("go", "install", module+"/cmd/lockquake@latest"); code != 0 {
		t.Fatalf("go install: %s", out)
	}
	program := filepath.Join(bin, "lockquake")
	if out, _ := run("go", "version", "-m", program); !strings.Contains(out, "\tmod\t"+module+"\t"+version) {
		t.Errorf("it was built from\n%s", out)
	}
	verbs := []string{"run memory-healthy", "run etcd-holder-pause --provider local"}
	if os.Getenv("LOCKQUAKE_TEST_PROVIDER") != "local" {
		verbs = append(verbs, "run redis-healthy --provider docker")
	}
	for _, args := range verbs {
		if out, code := run(program, strings.Fields(args)...); code != cli.CodeMet {
			t.Errorf("lockquake %s: exit code %d\n%s", args, code, out)
		}
	}
}

// packModule puts the tracked files of this tree into a directory that serves as a module proxy. A directory with its
// own go.mod is another module and is left out.
func packModule(t *testing.T, module, version, proxy string) {
	t.Helper()
	tree := strings.TrimSpace(command(t, "git", "stash", "create")) // commits the changed files without touching anything
	if tree == "" {
		tree = "HEAD"
	}
	folder := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-C", "../..", "archive", "--format=zip", "--prefix=" + module + "@" + version + "/",
		"--output=" + filepath.Join(folder, version+".zip"), tree, "--", ".",
	}
	for _, mod := range strings.Fields(command(t, "git", "-C", "../..", "ls-files", "*/go.mod")) {
		args = append(args, ":(exclude)"+filepath.Dir(mod))
	}
	command(t, "git", args...)
	for name, text := range map[string]string{
		"list": version + "\n", version + ".info": `{"Version": "` + version + `"}`,
		version + ".mod": command(t, "git", "show", tree+":go.mod"),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// command runs a command and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return string(out)
}
