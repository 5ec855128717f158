package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
)

var update = flag.Bool("update", false, "write the tables that the tests compare")

// written is a table in a document that is generated from the tree.
type written struct {
	doc  string
	name string // in the lines around the table
	rows func() [][]string
}

// TestTablesInDocs compares the tables in documents with the descriptions of locks, counts and measures.
func TestTablesInDocs(t *testing.T) {
	for _, w := range []written{
		{"../../docs/backends.md", "locks", func() [][]string {
			return append([][]string{lockColumns}, lockRows(servicesWith(false), true)...)
		}},
		{"../../docs/internals/broken-locks.md", "locks of services", func() [][]string {
			return append([][]string{lockColumns}, lockRows(servicesWith(true), true)...)
		}},
		{"../../docs/internals/broken-locks.md", "broken locks", brokenLocks},
		{"../../docs/verdict.md", "counts", func() [][]string {
			return glossary(func(k results.CheckerKind) []results.Quantity { return k.Counts })
		}},
		{"../../docs/verdict.md", "measures", func() [][]string {
			return glossary(func(k results.CheckerKind) []results.Quantity { return k.Measures })
		}},
		{"../../docs/suites.md", "stories", suiteStories},
		{"../../docs/internals/broken-locks.md", "wrong locks", wrongLocks},
	} {
		if err := w.hold(*update); err != nil {
			t.Error(err)
		}
	}
}

// readmeLimit is the maximum size of the README in bytes. What does not fit belongs in docs/.
const readmeLimit = 12_000

func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > readmeLimit {
		t.Errorf("README.md has %d bytes, at most %d: move something to docs/ and link it", len(text), readmeLimit)
	}
}

// TestReadmeSaysWhatLocalNeeds: each command that starts Redis as a process comes after a line that names its server.
func TestReadmeSaysWhatLocalNeeds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, seen := strings.Split(string(text), "\n"), 0
	for i, line := range lines {
		if !strings.HasPrefix(line, "build/lockquake") || !strings.Contains(line, "redis") || !strings.Contains(line, "--provider local") {
			continue
		}
		if seen++; !strings.Contains(lines[i-1], "redis-server") {
			t.Errorf("README.md:%d: nothing says that it needs redis-server: %s", i+1, line)
		}
	}
	if seen == 0 {
		t.Error("README.md has no command with --provider local")
	}
}

// servicesWith returns the backends with servers, each with its deliberately wrong locks only, or with the others only.
func servicesWith(wrong bool) []listed.Backend {
	services := slices.DeleteFunc(nodes.Catalog().Backends, func(b listed.Backend) bool { return b.InProcess })
	for i, b := range services {
		services[i].Locks = slices.DeleteFunc(slices.Clone(b.Locks), func(l backends.Lock) bool {
			return (l.Wrong != "") != wrong
		})
	}
	return services
}

// brokenLocks returns those of memory.
func brokenLocks() [][]string {
	rows := [][]string{{"lock", "what it does", "what is wrong"}}
	for _, b := range nodes.Catalog().Backends {
		for _, l := range b.Locks {
			if b.InProcess && l.Wrong != "" {
				rows = append(rows, []string{"`" + l.Name + "`", l.Doc, l.Wrong})
			}
		}
	}
	return rows
}

// suiteStories returns those of the default suite.
func suiteStories() [][]string {
	rows := [][]string{{"story", "quick", "where", "what"}}
	for _, x := range stories.All() {
		quick := ""
		if x.Quick {
			quick = "yes"
		}
		rows = append(rows, []string{"`" + x.Name + "`", quick, x.Where(), strings.TrimSpace(x.Claim + " " + x.Note)})
	}
	return rows
}

// wrongLocks returns all locks that are deliberately wrong, with the stories that find them. A lock of several
// backends is listed once.
func wrongLocks() [][]string {
	rows := [][]string{{"lock", "story", "what is found"}}
	for _, b := range nodes.Catalog().Backends {
		for _, l := range b.Locks {
			for _, f := range l.Found.Stories {
				row := []string{"`" + l.Name + "`", "`" + f.Story + "`", f.Shows}
				if !slices.ContainsFunc(rows, func(r []string) bool { return slices.Equal(r, row) }) {
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

// glossary has a row for each quantity, and a single row for the quantiles of a time: "median, from A to B" and
// "maximum, from A to B" become "median to maximum, from A to B".
func glossary(of func(results.CheckerKind) []results.Quantity) [][]string {
	rows := [][]string{{"name", "meaning"}}
	first, last := "", ""
	for _, k := range checkers.All() {
		for _, q := range of(k) {
			which, what, _ := strings.Cut(q.Doc, ", ")
			if row := rows[len(rows)-1]; strings.HasPrefix(what, "from ") && what == last {
				row[0] += ", `" + q.Name + "`"
				row[1] = first + " to " + which + ", " + what
				continue
			}
			rows = append(rows, []string{"`" + q.Name + "`", q.Doc})
			first, last = which, what
		}
	}
	return rows
}

// hold compares the table in the document with the expected one, or rewrites it.
func (w written) hold(update bool) error {
	text, err := os.ReadFile(w.doc)
	if err != nil {
		return err
	}
	begins := "<!-- " + w.name + ": written by go test ./cmd/lockquake -run TestTablesInDocs -update -->\n"
	ends := "<!-- end of " + w.name + " -->\n"
	before, rest, ok := strings.Cut(string(text), begins)
	table, after, ended := strings.Cut(rest, ends)
	want := markdown(w.rows())
	switch {
	case !ok || !ended:
		return fmt.Errorf("%s lacks the lines around the table of %s", w.doc, w.name)
	case table == want:
		return nil
	case !update:
		return fmt.Errorf("%s has an old table of %s; write it anew: make generate", w.doc, w.name)
	}
	return os.WriteFile(w.doc, []byte(before+begins+want+ends+after), 0o600)
}

// markdown formats rows as a table, with the first row as its head.
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

// TestFlagsHaveNoBackQuotes: pflag takes a word in back-quotes as the name of the value.
func TestFlagsHaveNoBackQuotes(t *testing.T) {
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.Contains(f.Usage, "`") {
				t.Errorf("%s --%s: %s", c.CommandPath(), f.Name, f.Usage)
			}
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot(cli.Streams{}, cli.Streams{}))
}
