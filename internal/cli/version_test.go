package cli

import (
	"os"
	"strings"
	"testing"
)

func TestChangelogHasThisVersion(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\n## "+release+" - ") {
		t.Errorf("CHANGELOG.md has no heading for %s", release)
	}
}

func TestVersionNamesTheCommit(t *testing.T) {
	for commit, want := range map[string]string{"": release, "abc1234": release + " (abc1234)"} {
		if got := versionOf(commit); got != want {
			t.Errorf("of commit %q: %q, want %q", commit, got, want)
		}
	}
}
