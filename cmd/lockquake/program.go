package main

import (
	"os"
	"os/exec"
	"path/filepath"
)

// invocation is what to write in a shell to start this program. Main finds it out.
var invocation = "lockquake"

// startedAs returns "lockquake" where a shell finds that, else how this program was started.
func startedAs(word string) string {
	if _, err := exec.LookPath("lockquake"); err == nil {
		return "lockquake"
	}
	if filepath.Base(word) == word { // a shell found it, or somebody made the word up
		if _, err := exec.LookPath(word); err != nil {
			if self, err := os.Executable(); err == nil {
				word = self
			}
		}
	}
	return quoted(word)
}
