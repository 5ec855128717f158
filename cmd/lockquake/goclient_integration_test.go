//go:build integration

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/results"
)

// TestVersionsOfAGoLibrary compares two versions of a library: before redsync v4.0.4, Extend succeeded for a lock that
// was gone. A version that does not exist is reported. In the last row two versions compete for one lock.
func TestVersionsOfAGoLibrary(t *testing.T) {
	t.Parallel()
	const module = "github.com/go-redsync/redsync/v4"
	dir, err := filepath.Abs("../../clients/go")
	if err != nil {
		t.Fatal(err)
	}
	text := "stories: [late-renewal]\nlocks:\n"
	for _, version := range []string{"v4.0.3", "v4.0.4", "v4.0.9999"} {
		text += "  - {backend: redis, lock: redsync, client: {go: redsync, dir: " + dir + ", with: [" + module + "@" + version + "]}}\n"
	}
	text += "  - {backend: redis, lock: redsync, client: {go: redsync, dir: " + dir + ", with: [" + module + "@v4.0.4], beside: [{go: redsync, dir: " + dir + ", with: [" + module + "@v4.0.3]}]}}\n"
	file := filepath.Join(t.TempDir(), "versions.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	got, code := runSuite(t, file, "--provider", "local", "--out", out)
	if code != cli.CodeFailed || len(got.Cells) != 4 {
		t.Fatalf("exit code %d, %d cells", code, len(got.Cells))
	}
	for i, want := range []struct {
		versions []string
		reason   string
		state    suite.State
	}{
		{[]string{"v4.0.3"}, "renew of A, was done, but must not be", suite.Red},
		{[]string{"v4.0.4"}, "", suite.Green},
		{[]string{"v4.0.9999"}, "go get: go: " + module + "@v4.0.9999: ", suite.NotRun},
		{[]string{"v4.0.4", "v4.0.3"}, "", suite.Green}, // A uses the first one
	} {
		c := got.Cells[i]
		reason := c.NotRun
		if len(c.Runs) > 0 {
			reason = strings.Join(c.Runs[0].Reasons, "; ")
		}
		if c.Lock != "redis/redsync by redsync (redsync@"+strings.Join(want.versions, ") beside redsync (redsync@")+")" || c.State() != want.state || !strings.Contains(reason, want.reason) {
			t.Errorf("%s is %s: %s; want %s, %s", c.Lock, c.State(), reason, want.state, want.reason)
		}
		if len(c.Runs) == 0 {
			continue
		}
		var env results.Env
		found, err := filepath.Glob(filepath.Join(out, "suite-*", c.Runs[0].Dir, results.FileEnv))
		if err != nil || len(found) != 1 {
			t.Fatalf("its run left %v, %v", found, err)
		}
		data, err := os.ReadFile(found[0])
		if err == nil {
			err = json.Unmarshal(data, &env)
		}
		if err != nil {
			t.Fatal(err)
		}
		for k, client := range env.Clients {
			if version := want.versions[k%len(want.versions)]; client.Libraries[module] != version {
				t.Errorf("%s: %s has %v, want %s", c.Lock, client.Name, client.Libraries, version)
			}
		}
		if len(env.Clients) < len(want.versions) {
			t.Errorf("%s: its clients are %+v", c.Lock, env.Clients)
		}
	}
}
