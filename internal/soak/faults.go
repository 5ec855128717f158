package main

import (
	"os"
	"path/filepath"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/tryout"
)

// faultRuns is how often each fault is tried on each backend.
const faultRuns = 3

// faultRows are all faults on all backends that have servers, but for what a service does not know. They come out of the two lists,
// so a new fault has its rows by itself.
func faultRows() []Row {
	var out []Row
	for _, b := range all.All() {
		if b.InProcess {
			continue
		}
		for _, k := range chaos.Kinds() {
			o, err := tryout.One(k, 0, b)
			if err != nil || !wanted(k, b) {
				continue
			}
			out = append(out, Row{
				Scenario: o.Name, Text: tryout.Scenario(o), Backend: b.Name, Provider: "docker", Count: faultRuns, Optional: true,
				Shows: "it acts while it stands, and is healed",
			})
		}
	}
	return out
}

// wanted tells whether a service has what a fault needs of it.
func wanted(k chaos.Kind, b backends.Backend) bool {
	t, err := tryout.Topology(b)
	if err != nil {
		return false
	}
	f, err := k.New(func(any) error { return nil })
	if err != nil {
		return true // it takes keys, and so needs nothing of the service
	}
	w, ok := f.(chaos.Wanting)
	return !ok || w.Wants(t.Service(nil)) == nil
}

// write puts a scenario that comes out of no file below scenarios/ where it can be run, and returns the file.
func (r runner) write(row Row) (string, error) {
	dir := filepath.Join(r.top, ".soak", "scenarios")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, row.Scenario+".yaml")
	return path, os.WriteFile(path, []byte(row.Text), 0o644)
}
