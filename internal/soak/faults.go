package main

import (
	"os"
	"path/filepath"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/tryout"
)

// faultRuns is how often each fault is tried on each backend.
const faultRuns = 3

// faultRows are all faults on all backends that have servers, but for those that there is nothing to try of. They come out of the two lists,
// so a new fault has its rows by itself.
func faultRows() []Row {
	var out []Row
	for _, b := range all.All() {
		for _, k := range chaos.Kinds() {
			if !tryout.Applies(k, b) {
				continue
			}
			o, err := tryout.One(k, 0, b)
			if err != nil {
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

// write puts a scenario that comes out of no file below scenarios/ where it can be run, and returns the file.
func (r runner) write(row Row) (string, error) {
	dir := filepath.Join(r.top, ".soak", "scenarios")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, row.Scenario+".yaml")
	return path, os.WriteFile(path, []byte(row.Text), 0o644)
}
