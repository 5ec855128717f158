package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
)

// edited copies the faults to a folder of its own, with some text in a file replaced.
func edited(t *testing.T, file, old, new string) parts {
	t.Helper()
	dir := t.TempDir()
	paths, err := filepath.Glob(filepath.Join("..", "..", faultsFolder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text := read(t, path)
		if filepath.Base(path) == file {
			if !strings.Contains(text, old) {
				t.Fatalf("%s has no %q", file, old)
			}
			text = strings.Replace(text, old, new, 1)
		}
		write(t, filepath.Join(dir, filepath.Base(path)), text)
	}
	p, err := readParts(dir)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestARowDependsOnTheFaultsThatItNames(t *testing.T) {
	before := edited(t, "", "", "")
	names := []string{"none"}
	for _, k := range chaos.Kinds() {
		names = append(names, k.Name)
	}
	links := []string{"delay", "loss", "duplicate", "reorder", "corrupt", "rate"}
	for _, c := range []struct {
		file, old, new string
		changed        []string
	}{
		{"rate.go", "rateMore, rateLess = 1.5", "rateMore, rateLess = 1.6", []string{"rate"}},
		{"bendseen.go", "mostLooks = 3", "mostLooks = 4", links},
		{"pause.go", "it is still stopped", "it still is", []string{"pause"}},
		{"victims.go", "had no process to end", "has none", []string{"kill", "stop", "restart"}},
		{"hits.go", "nothing had been done", "nothing", slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "none" || n == "noop" })},
		{"kinds.go", "noopKind(), pauseKind()", "pauseKind(), noopKind()", nil},
		{"stack.go", "func NewStack() *Stack {", "func NewStack() *Stack { println();", names},
		{"pause.go", "// Inject stops", "// Inject halts", nil},
	} {
		after := edited(t, c.file, c.old, c.new)
		var changed []string
		for _, n := range names {
			faults := []string{n}
			if n == "none" {
				faults = nil
			}
			was, err := before.of(faults)
			if err != nil {
				t.Fatal(err)
			}
			if is, err := after.of(faults); err != nil || is != was {
				changed = append(changed, n)
			}
		}
		want := slices.Sorted(slices.Values(c.changed))
		slices.Sort(changed)
		if !slices.Equal(changed, want) {
			t.Errorf("%s, %s: changes %v, want %v", c.file, c.new, changed, want)
		}
	}
	if _, err := before.of([]string{"earthquake"}); err == nil {
		t.Error("an unknown fault must be refused")
	}
}
