package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/chaos"
	faults "github.com/lockquake/lockquake/chaos/all"
	wall "github.com/lockquake/lockquake/chaos/clock"
	"github.com/lockquake/lockquake/chaos/disk"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/cluster/state"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/internal/tryout"
	"github.com/lockquake/lockquake/scenarios"
)

// The columns of doctor's matrix are the kinds of target. A link fault is tried on the links from a client to all
// other nodes.
const (
	onServer   = string(node.Server)
	onClient   = string(node.Client)
	onResource = string(node.Resource)
	onLink     = "link"
)

var columns = []string{onServer, onClient, onResource, onLink}

// testbed is a throwaway topology, with the target node for each column.
type testbed struct {
	name    string
	backend string
	set     string // keys of the backend
	on      map[string]string
}

// testbeds are the topologies on which faults are tried. etcd is built in, so it is available everywhere. On three
// hosts that get the nodes in turn, etcd-1, client-2 and the register are on different ones.
var testbeds = map[string]testbed{
	"plain": {name: "plain", backend: "etcd", on: map[string]string{
		onServer: "etcd-1", onClient: "client-2",
		onResource: "register", onLink: "client-2",
	}},
	// Its disk must exist before the server starts.
	"disk": {name: "disk", backend: "etcd", on: map[string]string{onServer: "etcd-1"}},
	// A C program, for faults that do not work on Go programs, with data that may be lost.
	"redis": {
		name: "redis", backend: "redis", set: "persistence: everysec",
		on: map[string]string{onServer: "redis-1"},
	},
}

// attempt is one way to inject a fault, to be tried in one column.
type attempt struct {
	kind    chaos.Kind
	keys    string
	column  string
	testbed testbed
	on      string
}

// attempts returns all ways of all faults, except those that do nothing.
func attempts() ([]attempt, error) {
	var out []attempt
	for _, k := range faults.Kinds() {
		for _, keys := range k.Trials() {
			params, err := scenarios.ParseParams("{" + keys + "}")
			if err != nil {
				return nil, fmt.Errorf("trial of %s: %w", k.Name, err)
			}
			f, err := k.New(params.Decode)
			if err != nil {
				return nil, fmt.Errorf("trial of %s: %w", k.Name, err)
			}
			for _, column := range columnsOf(k, f) {
				a := attempt{kind: k, keys: keys, column: column, testbed: testbedFor(k, f, column)}
				a.on = a.testbed.on[column]
				if _, wants := f.(chaos.Wanting); wants && a.testbed.name == "plain" {
					a.on = "leader"
				}
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// columnsOf returns the columns in which a fault acts.
func columnsOf(k chaos.Kind, f chaos.Fault) []string {
	_, linked := f.(chaos.Linked)
	_, wants := f.(chaos.Wanting)
	switch {
	case linked:
		return []string{onLink}
	case k.Servers || wants || k.Shell:
		return []string{onServer}
	case len(k.NeedsOf(f)) == 0:
		return nil
	}
	return []string{onServer, onClient, onResource}
}

func testbedFor(k chaos.Kind, f chaos.Fault, column string) testbed {
	var before []node.Preparation
	if p, ok := f.(chaos.Prepared); ok {
		before = p.Preparations()
	}
	switch {
	case column != onServer:
	case slices.Contains(before, disk.LoopDisk):
		return testbeds["disk"]
	case slices.Contains(before, wall.Preload) || slices.Contains(k.NeedsOf(f), disk.CanData) || k.Shell,
		!serves(testbeds["plain"], f):
		return testbeds["redis"]
	}
	return testbeds["plain"]
}

// serves reports whether the service of a testbed supports the fault.
func serves(t testbed, f chaos.Fault) bool {
	w, wants := f.(chaos.Wanting)
	if !wants {
		return true
	}
	list := nodes.Catalog().Backends
	i := slices.IndexFunc(list, func(b listed.Backend) bool { return b.Name == t.backend })
	top, err := tryout.Topology(list[i])
	return err == nil && w.Wants(top.Service(nil)) == nil
}

// id identifies the attempt.
func (a attempt) id() string { return a.kind.Name + " on " + a.column + " {" + a.keys + "}" }

// String describes the attempt for people.
func (a attempt) String() string {
	text := a.kind.Name
	if a.keys != "" {
		text += " (" + a.keys + ")"
	}
	return text + " on a " + a.column
}

// options returns the run of some attempts on their testbed.
func (d *doctor) options(p cluster.Provider, list []attempt) (engine.Options, error) {
	o := tryout.Options{
		Name: "doctor-" + list[0].testbed.name, Backend: list[0].testbed.backend,
		Set: list[0].testbed.set, For: 2 * time.Second,
	}
	for _, a := range list {
		o.Entries = append(o.Entries, tryout.Entry{Fault: a.kind.Name, On: a.on, Keys: a.keys})
	}
	s, err := scenarios.Parse([]byte(tryout.Scenario(o)), o.Name+".yaml")
	return engine.Options{
		Request: engine.Request{Scenario: s, Provider: p, Catalog: nodes.Catalog()},
		Out:     d.out, Version: cli.Version, Started: time.Now(), Log: d.log,
	}, err
}

// doctor tries faults and reports the results.
type doctor struct {
	out  string // directory of the runs' output
	log  *slog.Logger
	tell func(format string, args ...any)
}

// newDoctor returns a doctor. done removes its files.
func newDoctor(log *slog.Logger, tell func(string, ...any)) (d *doctor, done func(), err error) {
	out, remove, err := state.Scratch("doctor")
	if err != nil {
		return nil, nil, fmt.Errorf("make a directory for the trials: %w", err)
	}
	return &doctor{out: out, log: log, tell: tell}, func() { _ = remove() }, nil
}

// try makes attempts on one testbed, and reports each result. If the testbed does not start for all of them, each is
// tried alone.
func (d *doctor) try(ctx context.Context, p cluster.Provider, list []attempt, told func(attempt, way)) error {
	o, err := d.options(p, list)
	if err != nil {
		return err
	}
	tried := 0
	err = engine.TryOut(ctx, o, roundsOf(list), func(t engine.Tried) {
		tried++
		w := seenOf(t.Fault)
		w.Hosts = t.Hosts
		d.tell("%s: %s: %s", p.Name(), list[t.Entry], w.Word())
		told(list[t.Entry], w)
	})
	var missing engine.MissingError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case tried > 0 || err == nil:
		return err
	case !errors.As(err, &missing):
		return err
	case len(list) == 1:
		w := way{Answer: No, Reason: "the nodes of the trial do not start: " + cli.OneLine(err.Error())}
		d.tell("%s: %s: %s", p.Name(), list[0], w.Word())
		told(list[0], w)
		return nil
	}
	for i := range list {
		if err := d.try(ctx, p, list[i:i+1], told); err != nil {
			return err
		}
	}
	return nil
}

// roundsOf orders attempts, given as indices of the list. Attempts that kill a process come last. Two attempts in one
// column are never made at the same time.
func roundsOf(list []attempt) [][][]int {
	var out [][][]int
	for _, kills := range []bool{false, true} {
		var rows [][]int
		for _, column := range columns {
			var row []int
			for i, a := range list {
				if a.kind.Kills == kills && a.column == column {
					row = append(row, i)
				}
			}
			if len(row) > 0 {
				rows = append(rows, row)
			}
		}
		if len(rows) > 0 {
			out = append(out, rows)
		}
	}
	return out
}

// seenOf derives the result from the receipts.
func seenOf(f history.Fault) way {
	w := way{Answer: Yes, By: f.Receipt.By, Evidence: f.Receipt.Evidence, At: time.Now().UTC().Truncate(time.Second)}
	if f.Healed != nil {
		w.Healed = f.Healed.Evidence
	}
	switch {
	case f.Receipt.Status != history.Installed:
		w.Answer, w.Reason = No, fmt.Sprintf("tried: %s: %s", f.Receipt.Status,
			cli.OneLine(f.Receipt.Evidence))
	case f.Healed == nil || f.Healed.Status == history.NotInstalled:
		w.Answer, w.Reason = No, "tried: not healed: "+cli.OneLine(w.Healed)
	}
	return w
}
