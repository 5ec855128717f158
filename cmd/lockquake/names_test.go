package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/backends/all"
	faults "github.com/lockquake/lockquake/chaos/all"
)

// nameHomes are the directories that may name instances: their own, and those of clients, scenarios and test scripts,
// which use them.
var nameHomes = []string{"backends/", "chaos/", "clients/", "workloads/resource/", "examples/", "scenarios/"}

// nameExceptions lists the other files that may contain the name of a backend, a lock or a fault as a string, and why.
var nameExceptions = map[string]string{
	"cmd/lockquake/doctor/cells.go":             "the testbeds of doctor are listed in an order",
	"cmd/lockquake/client.go":                   "redis is what `client check` locks on where none is named",
	"cmd/lockquake/doctor/trial.go":             "the testbeds of doctor: a service that is built in, and one in C",
	"internal/cluster/limits/groups_linux.go":   "memory: a control group",
	"internal/cluster/executable/executable.go": "Debian's packages of programs",
	"internal/cluster/signals.go":               "freeze: what a control group does",
	"internal/engine/host.go":                   "memory: of the machine",
	"internal/huntbench/targets.go":             "targets of the benchmark are locks in versions, and faults",
	"internal/soak/rows.go":                     "rows of the track record are locks in versions",
	"internal/stories/random.go":                "the faults that are drawn where none are named",
	"internal/stories/subject.go":               "delay: a value that stories name",
	"internal/storypages/families.go":           "words of the pages of stories",
	"internal/sweep/axis.go":                    "rate, own: values of axes",
	"internal/sweep/request.go":                 "rate: the name of an axis",
	"internal/tryout/tryout.go":                 "noop: a fault that does nothing is no way to try a client",
	"internal/wire/wire.go":                     "stop: a frame",
	"cmd/lockquake/capacity.go":                 "rate: a flag",
	"locktest/service.go":                       "locktest.Redis() and the like: a library's author names the service",
	"results/checkers/wedges.go":                "wedges: the count",
	"results/compare/write.go":                  "own, rate: columns",
	"results/env.go":                            "memory: of the machine",
	"results/oldfaults.go":                      "faults of run directories that do not tell what a fault does",
	"results/report/html.go":                    "exact: a class of the page",
}

// TestNamesStandAtHome: code outside the directory of a backend, a lock or a fault asks it for a trait, and does not
// compare its name. Otherwise a new instance would be forgotten there.
func TestNamesStandAtHome(t *testing.T) {
	t.Parallel()
	var names []string
	for _, b := range all.All() {
		names = append(names, b.Name)
		for _, l := range b.Locks {
			names = append(names, l.Name)
		}
	}
	for _, k := range faults.Kinds() {
		names = append(names, k.Name)
	}
	used := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel("../..", path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2, d.IsDir() && d.Name() == "build":
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"), slices.ContainsFunc(nameHomes, func(home string) bool { return strings.HasPrefix(name, home) }):
			return nil
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(l.Value); err == nil && slices.Contains(names, text) {
				if nameExceptions[name] == "" {
					t.Errorf("%s:%d: %q is named here: ask it for a trait, or say in nameExceptions why not", name, files.Position(l.Pos()).Line, text)
				}
				used[name] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range nameExceptions {
		if !used[name] {
			t.Errorf("%s names nothing any more: take it off nameExceptions", name)
		}
	}
}
