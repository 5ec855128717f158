//go:build bench

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cluster"
)

// times returns how often to measure, from the environment.
func times(t *testing.T, name string, otherwise int) int {
	t.Helper()
	s := setting(name, strconv.Itoa(otherwise))
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q; it should be how often each arm is measured, 1 or more", name, s)
	}
	return n
}

// measured returns the backends to measure: those of LOCKQUAKE_BACKENDS, or all.
func measured() []string {
	return strings.Split(setting("LOCKQUAKE_BACKENDS", strings.Join(compose.Backends(), ",")), ",")
}

// providerFor opens a provider. If it is not available, the test says what was not measured, and why.
func providerFor(t *testing.T, name, what string) cluster.Provider {
	t.Helper()
	p, _, err := nodes.Choose(t.Context(), name)
	if err != nil {
		fmt.Printf("%s was not measured: %v\n", what, err)
		t.Skip(err)
	}
	return p
}

// runText runs the text of a scenario, and returns the run's directory and output. The verdict does not matter.
func runText(t *testing.T, p cluster.Provider, text string) (dir, said string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "measured.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	dir, said, _ = runIn(t, t.TempDir(), file, "--provider", p.Name())
	return dir, said
}
