package main

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends"
)

var update = flag.Bool("update", false, "write the tables that the tests compare")

// The README's table of locks stands between these lines.
const (
	readme      = "../../README.md"
	tableBegins = "<!-- locks: written by go test ./cmd/lockquake -run TestReadmeLocks -update -->\n"
	tableEnds   = "<!-- end of locks -->\n"
)

// TestReadmeLocks holds the table of locks in the README to what the locks say of themselves. The broken locks of memory are
// left to `lockquake list locks`.
func TestReadmeLocks(t *testing.T) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegins)
	table, after, ends := strings.Cut(rest, tableEnds)
	if !ok || !ends {
		t.Fatalf("%s lacks the lines around the table of locks", readme)
	}
	services := slices.DeleteFunc(catalog().Backends, func(b backends.Backend) bool { return b.InProcess })
	want := markdown(append([][]string{lockColumns}, lockRows(services, true)...))
	if table == want {
		return
	}
	if !*update {
		t.Fatalf("%s has an old table of locks; write it anew: go test ./cmd/lockquake -run TestReadmeLocks -update", readme)
	}
	if err := os.WriteFile(readme, []byte(before+tableBegins+want+tableEnds+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// markdown makes a table out of rows, the first of which is its head.
func markdown(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}
