package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/results/checkers"
	"github.com/lockquake/lockquake/results/report"
	"github.com/lockquake/lockquake/scenarios"
)

// item is one entry of a list; what does not belong to a kind of entry is left out.
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
	Points  []string           `json:"points,omitempty"`   // that a step can arm
	Counts  []results.Quantity `json:"counts,omitempty"`   // usable in expect
	Measure []results.Quantity `json:"measures,omitempty"` // usable in expect
	Tone    results.Tone       `json:"tone,omitempty"`
}

// lists makes each list that can be asked for.
var lists = map[string]func() []item{
	"backends":  listBackends,
	"locks":     listLocks,
	"workloads": listWorkloads,
	"faults":    listFaults,
	"scenarios": listScenarios,
	"checkers":  listCheckers,
	"measures":  listMeasures,
}

// listNames is the keys of lists in the order of the help.
var listNames = []string{"backends", "locks", "workloads", "faults", "scenarios", "checkers", "measures"}

func listCommand(std streams) *cobra.Command {
	c := &cobra.Command{
		Use:       "list " + strings.Join(listNames, "|"),
		Short:     "List what a scenario can name",
		ValidArgs: listNames,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("list: name one of %s", strings.Join(listNames, ", "))
			}
			if lists[args[0]] == nil {
				return usagef("list: there is no list of %q; there are %s", args[0], strings.Join(listNames, ", "))
			}
			return nil
		},
	}
	f := formatFlag(c, "text", "json")
	wide := c.Flags().Bool("wide", false, "of locks, all columns: what each offers, what it is, and what is wrong with it")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := f.check(); err != nil {
			return err
		}
		items := lists[args[0]]()
		if f.value == "json" {
			return writeJSON(std.out, items)
		}
		w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
		for _, line := range textOf(args[0], items, *wide) {
			fmt.Fprintln(w, strings.Join(line, "\t"))
		}
		if args[0] == "locks" && !*wide {
			fmt.Fprintln(std.err, "list locks --wide tells what else each lock offers, and what it is")
		}
		return w.Flush()
	}
	return c
}

// textOf is a list as people read it: a line of cells for each item; the locks are a table with a head, and all columns of it only
// where they were asked for.
func textOf(list string, items []item, wide bool) [][]string {
	if list == "locks" {
		rows := append([][]string{lockColumns}, lockRows(catalog().Backends, false)...)
		for i, r := range rows {
			if !wide {
				rows[i] = narrow(r)
			}
		}
		return rows
	}
	var lines [][]string
	for _, i := range items {
		lines = append(lines, []string{i.Name, strings.Join(strings.Fields(i.Doc), " ")})
	}
	return lines
}

func listBackends() []item {
	out := []item{}
	for _, b := range catalog().Backends {
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
	for _, b := range catalog().Backends {
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
	for _, w := range catalog().Workloads {
		out = append(out, item{Name: w.Name, Doc: w.Doc})
	}
	return out
}

func listFaults() []item {
	out := []item{}
	for _, k := range catalog().Faults {
		i := item{Name: k.Name, Doc: k.Doc}
		if k.Sample != "" {
			i.Doc += " A random schedule that gives it no keys takes " + k.Sample + "."
		}
		for _, n := range k.Needs {
			i.Needs = append(i.Needs, string(n))
		}
		out = append(out, i)
	}
	return out
}

func listScenarios() []item {
	out := []item{}
	for _, s := range scenarios.Names() {
		out = append(out, item{Name: s.Name, Doc: s.Claim, File: s.File})
	}
	return out
}

func listCheckers() []item {
	out := []item{}
	for _, k := range checkers.All() {
		out = append(out, item{Name: k.Name, Doc: k.Doc, Counts: k.Counts, Measure: k.Measures})
	}
	return out
}

// tones say what the judge does with a count above zero that expect does not name.
var tones = map[results.Tone]string{
	results.Violation: " It must be 0 unless expect names it.", results.Doubtful: " Told next to the verdict unless expect names it.",
}

// listMeasures lists what expect can name.
func listMeasures() []item {
	out := []item{}
	for _, q := range checkers.All().Quantities() {
		out = append(out, item{Name: q.Name, Doc: strings.TrimSuffix(report.Plain(q.Doc), ".") + "." + tones[q.Tone], Tone: q.Tone})
	}
	return out
}

// completeRunDir offers directories.
func completeRunDir(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeScenario offers the scenarios that come with lockquake, and files.
func completeScenario(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, s := range scenarios.Names() {
		if strings.HasPrefix(s.Name, begun) {
			claim, _, _ := strings.Cut(s.Claim, ". ")
			out = append(out, cobra.CompletionWithDesc(s.Name, claim))
		}
	}
	return out, cobra.ShellCompDirectiveDefault
}
