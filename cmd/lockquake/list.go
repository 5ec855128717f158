package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/internal/stories/ask"
	"github.com/lockquake/lockquake/internal/suite"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/figure"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/results/terminal"
	"github.com/lockquake/lockquake/scenarios"
)

// item is an entry of a list. Fields that its kind does not have are omitted.
type item struct {
	Name    string             `json:"name"`
	Backend string             `json:"backend,omitempty"`
	Doc     string             `json:"doc"`
	Locks   []string           `json:"locks,omitempty"`
	Needs   []string           `json:"needs,omitempty"`
	Wrong   string             `json:"wrong,omitempty"`
	MinTTL  string             `json:"min_ttl,omitempty"`
	Offers  *backends.Offers   `json:"offers,omitempty"`
	File    string             `json:"file,omitempty"`
	Points  []string           `json:"points,omitempty"`   // that steps can arm
	Counts  []results.Quantity `json:"counts,omitempty"`   // usable in expect
	Measure []results.Quantity `json:"measures,omitempty"` // usable in expect
	Tone    results.Tone       `json:"tone,omitempty"`

	path string // directory and name of a scenario
}

// lists has a constructor for each list.
var lists = map[string]func() []item{
	"backends":  listBackends,
	"locks":     listLocks,
	"workloads": listWorkloads,
	"faults":    listFaults,
	"scenarios": listScenarios,
	"checkers":  listCheckers,
	"measures":  listMeasures,
}

// listNames are the keys of lists, in the order of the help.
var listNames = []string{"backends", "locks", "workloads", "faults", "scenarios", "checkers", "measures"}

func listCommand(std cli.Streams) *cobra.Command {
	c := &cobra.Command{
		Use:       "list " + strings.Join(listNames, "|") + " [PATTERN]",
		Short:     "List what a scenario can name",
		Example:   "  lockquake list scenarios 'redlock-*'\n  lockquake list scenarios 'rates/*'\n  lockquake list scenarios --for etcd\n  lockquake list scenarios --suite 'late-*'\n  lockquake list measures '*_p99_ms'",
		ValidArgs: listNames,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return cli.Usagef("list: name one of %s, and at most one pattern", strings.Join(listNames, ", "))
			}
			if lists[args[0]] == nil {
				return cli.Usagef("list: there is no list of %q; there are %s", args[0], strings.Join(listNames, ", "))
			}
			return nil
		},
	}
	f := cli.AddFormat(c, "text", "json")
	wide := c.Flags().Bool("wide", false,
		"with locks: all columns, such as traits, description and known defects")
	ofSuite := c.Flags().Bool("suite", false,
		"with scenarios: the stories of the regression suite, which apply to any lock (docs/suites.md)")
	of := c.Flags().String("of", "",
		"with --suite: the scenarios of all stories for the lock that this JSON file describes; - is standard input (docs/suites.md)")
	backend := c.Flags().String("for", "", "with scenarios and locks: only those of this backend")
	// The flag was added on the line before: this cannot fail.
	_ = c.RegisterFlagCompletionFunc("for",
		cobra.FixedCompletions(nodes.BackendNames(listed.Clients(nodes.Catalog().Backends)),
			cobra.ShellCompDirectiveNoFileComp))
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := f.Check(); err != nil {
			return err
		}
		list := lists[args[0]]
		switch {
		case *ofSuite && (args[0] != "scenarios" || *backend != ""):
			return cli.Usagef("list --suite: only for scenarios, and without --for")
		case *of != "" && (!*ofSuite || len(args) > 1 || f.Value != "json"):
			return cli.Usagef("list --of prints all stories as JSON: list scenarios --suite --of FILE --format json")
		case *of != "":
			return storiesOf(std, *of)
		case *ofSuite:
			list = listSuite
		}
		items, err := chosenItems(list(), args, *backend)
		switch {
		case err != nil:
			return err
		case f.Value == "json":
			return cli.WriteJSON(std.Out, items)
		case args[0] == "locks":
			return printLocks(std, items, *wide)
		}
		lines := make([][2]string, len(items))
		for i, x := range items {
			lines[i] = [2]string{x.Name, x.Doc}
		}
		return terminal.Glossary(std.Out, lines, cli.Manner(std.Out, false)...)
	}
	return c
}

// chosenItems returns the items of a list that match the pattern, if any, and the backend.
func chosenItems(items []item, args []string, backend string) ([]item, error) {
	if backend != "" {
		if names := nodes.BackendNames(listed.Clients(nodes.Catalog().Backends)); !slices.Contains(names, backend) {
			return nil, cli.Usagef("list --for: there is no backend %q; there are %s", backend,
				strings.Join(names, ", "))
		}
		if items = slices.DeleteFunc(items, func(i item) bool { return i.Backend != backend }); len(items) == 0 {
			return nil, cli.Usagef("list: --for is for scenarios and locks; %s have no backend", args[0])
		}
	}
	if len(args) == 1 {
		return items, nil
	}
	if _, err := path.Match(args[1], ""); err != nil {
		return nil, cli.Usagef("list: %q is no pattern: %v", args[1], err)
	}
	items = slices.DeleteFunc(items, func(i item) bool {
		return !scenarios.Listing{Name: strings.TrimPrefix(i.Name, suite.Folder), Path: i.path}.Matches(args[1])
	})
	if len(items) == 0 {
		return nil, cli.Usagef("list: no entry of %s matches %q; `lockquake list %[1]s` lists all", args[0], args[1])
	}
	return items, nil
}

// printLocks prints a table with a header. Wide selects all columns.
func printLocks(std cli.Streams, items []item, wide bool) error {
	var table figure.Table
	for i, r := range append([][]string{lockColumns}, lockRows(nodes.Catalog().Backends, false)...) {
		if i > 0 && !slices.ContainsFunc(items, func(x item) bool { return x.Backend == r[0] && x.Name == r[1] }) {
			continue
		}
		if !wide {
			r = narrow(r)
		}
		table = append(table, r)
	}
	if !wide {
		fmt.Fprintln(std.Err, "list locks --wide shows more traits of each lock and its description")
	}
	_, err := io.WriteString(std.Out, table.Text())
	return err
}

func listBackends() []item {
	out := []item{}
	for _, b := range nodes.Catalog().Backends {
		i := item{Name: b.Name, Doc: b.Doc}
		for _, l := range b.Locks {
			i.Locks = append(i.Locks, l.Name)
		}
		out = append(out, i)
	}
	return out
}

func listLocks() []item {
	out := []item{}
	for _, b := range nodes.Catalog().Backends {
		for _, l := range b.Locks {
			i := item{Name: l.Name, Backend: b.Name, Doc: l.Doc, Wrong: l.Wrong, Offers: &l.Offers, Points: l.Points}
			if l.MinTTL > 0 {
				i.MinTTL = l.MinTTL.String()
			}
			out = append(out, i)
		}
	}
	return out
}

func listWorkloads() []item {
	out := []item{}
	for _, w := range nodes.Catalog().Workloads {
		out = append(out, item{Name: w.Name, Doc: w.Doc})
	}
	return out
}

func listFaults() []item {
	out := []item{}
	for _, k := range nodes.Catalog().Faults {
		i := item{Name: k.Name, Doc: k.Doc}
		if k.Sample != "" {
			i.Doc += " Without keys, a random schedule uses " + k.Sample + "."
		}
		for _, n := range k.Needs {
			i.Needs = append(i.Needs, string(n))
		}
		out = append(out, i)
	}
	return out
}

// folders are the directories of the scenarios in list order: the most wanted first, broken locks last.
var folders = []string{"stories", "healthy", "rates", "random", "controls"}

func listScenarios() []item {
	out := []item{}
	for _, s := range scenarios.Names() {
		out = append(out, item{Name: s.Name, Backend: s.Backend, Doc: s.Claim, File: s.File, path: s.Path})
	}
	place := func(i item) int { return slices.Index(folders, path.Dir(i.File)) }
	slices.SortStableFunc(out, func(a, b item) int { return cmp.Compare(place(a), place(b)) })
	return out
}

func listCheckers() []item {
	out := []item{}
	for _, k := range checkers.All() {
		out = append(out, item{Name: k.Name, Doc: k.Doc, Counts: k.Counts, Measure: k.Measures})
	}
	return out
}

// tones describe what the judge does with a count above zero that expect does not name.
var tones = map[results.Tone]string{
	results.Violation: " It must be 0 unless expect names it.",
	results.Doubtful:  " Shown next to the verdict unless expect names it.",
}

// listMeasures lists the measures that expect can name.
func listMeasures() []item {
	out := []item{}
	for _, q := range checkers.All().Quantities() {
		out = append(out, item{
			Name: q.Name, Doc: strings.TrimSuffix(report.Plain(q.Doc), ".") + "." + tones[q.Tone],
			Tone: q.Tone,
		})
	}
	return out
}

// listSuite lists the stories of the regression suite.
func listSuite() []item {
	var out []item
	for _, t := range stories.All() {
		name := suite.Folder + t.Name
		out = append(out, item{Name: name, Doc: t.Claim, Needs: t.Needs, File: name + ".yaml", path: name})
	}
	return out
}

// prefixOfStories begins the names of scenarios that are made for the lock in a file.
const prefixOfStories = "locktest-"

// storiesOf prints the stories for the lock that a file describes.
func storiesOf(std cli.Streams, file string) error {
	text := std.In
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return cli.Usagef("list --of: %v", err)
		}
		defer func() { _ = f.Close() }()
		text = f
	}
	var l ask.Lock
	in := json.NewDecoder(text)
	in.DisallowUnknownFields()
	if err := in.Decode(&l); err != nil {
		return cli.Usagef("list --of %s: %v", file, err)
	}
	list, err := suite.Asked(l, prefixOfStories, nodes.Catalog().Backends)
	if err != nil {
		return cli.Usagef("list --of %s: %v", file, err)
	}
	return cli.WriteJSON(std.Out, list)
}
